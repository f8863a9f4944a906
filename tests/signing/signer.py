"""The engine's signer as a process: `headrace-sign` (testing/signer)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any

_BINARY = Path(__file__).resolve().parents[2] / "build/release/testing/signer/headrace-sign"


class Signer:
    """Signs requests; a context manager that ends the process."""

    def __enter__(self) -> Signer:
        self._process = subprocess.Popen(
            [_BINARY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.communicate()

    def __call__(self, **request: Any) -> str:
        """The signed headers, target or signature, depending on `as_`.

        Raises:
            ValueError: the request cannot be signed.
        """
        assert self._process.stdin
        assert self._process.stdout
        request["as"] = request.pop("as_")
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer: dict[str, str] = json.loads(self._process.stdout.readline())
        if "error" in answer:
            raise ValueError(answer["error"])
        (value,) = answer.values()
        return value
