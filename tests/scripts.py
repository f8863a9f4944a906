"""Scripts that run in their own interpreter, and code blocks that documents of others print."""

from __future__ import annotations

import os
import signal
import string
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest


class RunScript(Protocol):
    """Runs ``python -m headrace.compat script arguments`` and returns what it printed.

    The script lies in `tmp_path`, which is also its working directory.
    """

    def __call__(
        self,
        script: str,
        *arguments: object,
        command: tuple[str, ...] = ("-m", "headrace.compat"),
        expect_code: int = 0,
        **environment: str,
    ) -> str: ...


@pytest.fixture
def run_script(tmp_path: Path) -> RunScript:
    def run(
        script: str,
        *arguments: object,
        command: tuple[str, ...] = ("-m", "headrace.compat"),
        expect_code: int = 0,
        **environment: str,
    ) -> str:
        file = tmp_path / "script.py"
        file.write_text(textwrap.dedent(script))
        child = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", *command, str(file), *map(str, arguments)],
            env={**os.environ, "NO_GCE_CHECK": "true", **environment},
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # A group of its own: its DataLoader workers end with it, whatever happens.
            start_new_session=True,
        )
        try:
            out, err = child.communicate(timeout=200)
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.communicate()
        assert child.returncode == expect_code, f"code {child.returncode}\n{out}\n{err}"
        return out + err

    return run


@dataclass(frozen=True)
class Block:
    """A code block of a document, as the calls that it makes.

    Imports, names, calls and arguments are those of the document, in its order. Values and
    comments are ours; so are lines that a document leaves to its reader, which say so, and
    stand-ins for what a test machine lacks.
    """

    section: str
    code: str


@dataclass(frozen=True)
class Document:
    """The code blocks of one document, in one namespace, as a reader would try them.

    Args:
        title: the document, and where it is.
        blocks: all of them that are Python.
        given: what the document leaves to the reader: its data, and names that it does not define.
        then: what is looked at afterwards.
    """

    title: str
    blocks: list[Block]
    given: str = ""
    then: str = ""

    def script(self, **values: str) -> str:
        """Return a script that runs all blocks and prints each section when it has run."""
        parts = [self.given]
        for block in self.blocks:
            parts += [textwrap.dedent(block.code), f"print('ran:', {block.section!r}, flush=True)"]
        return string.Template("\n".join([*parts, self.then])).substitute(values)

    def require_ran(self, printed: str) -> None:
        """Assert that every block ran to its end, in order."""
        ran = [line[5:] for line in printed.splitlines() if line.startswith("ran: ")]
        assert ran == [block.section for block in self.blocks]
