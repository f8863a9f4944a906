"""Which bytes Python has summed up by itself, after they had arrived."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import _engine


def count_summed_bytes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which every call for a CRC adds how many bytes it summed."""
    sizes: list[int] = []

    def counted(name: str) -> None:
        real = getattr(_engine, name)

        def count(data: Any, begin: int = 0) -> int:
            sizes.append(memoryview(data).nbytes)
            return int(real(data, begin))

        monkeypatch.setattr(_engine, name, count)

    counted("crc32")
    counted("crc32c")
    return sizes
