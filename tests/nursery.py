"""Interpreters that have imported what they need already: forks of one that has done nothing else.

Importing torch or Lightning takes seconds; these children take none. They end as any interpreter
does.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.process.conftest import child_environment

# What it is told comes in lines on the standard input, and the exit codes go back the same way.
_MAIN = """
import json, os, sys
{imports}
for line in sys.stdin:
    job = json.loads(line)
    pid = os.fork()
    if pid == 0:
        break
    _, status = os.waitpid(pid, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
else:
    os._exit(0)
os.setsid()
for name, flags, descriptor in (("out", os.O_WRONLY, 1), ("err", os.O_WRONLY, 2)):
    file = os.open(job[name], flags | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, descriptor)
    os.close(file)
nothing = os.open(os.devnull, os.O_RDONLY)
os.dup2(nothing, 0)
os.close(nothing)
with open(job["pid"], "w") as file:
    file.write(str(os.getpid()))
os.environ.clear()
os.environ.update(job["environment"])
os.chdir(job["cwd"])
# Before the script's module is made: multiprocessing looks there for what it imports again.
sys.argv = job["argv"]
main = sys.modules["__main__"]
main.__file__ = sys.argv[0]
with open(sys.argv[0]) as file:
    code = compile(file.read(), sys.argv[0], "exec")
exec(code, main.__dict__)
"""


TORCH = "import torch, torch.utils.data, headrace.torch"


@dataclass(frozen=True)
class Ended:
    code: int
    out: bytes
    err: bytes


class Nursery:
    """Runs scripts, one at a time. In those of users a warning is none but a warning.

    Args:
        imports: the statement that the children need not carry out any more.
    """

    def __init__(self, imports: str = TORCH, *, warnings_are_errors: bool = True) -> None:
        self._environment = child_environment()
        if not warnings_are_errors:
            del self._environment["PYTHONWARNINGS"]
        self._process = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", "-c", _MAIN.replace("{imports}", imports)],
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        # It ends with its standard input, which a forked process may still hold open.
        self._process.terminate()
        self._process.wait(120)
        self._process.stdout.close()

    def __enter__(self) -> Nursery:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(
        self,
        folder: Path,
        script: str,
        *arguments: object,
        expect_code: int = 0,
        timeout_s: float = 160.0,
        stderr: str | None = "",
        cwd: Path | None = None,
        **environment: str,
    ) -> str:
        """As `run_child` of tests/process: what the script printed."""
        ended = self.end_of(
            folder,
            script,
            *map(str, arguments),
            timeout_s=timeout_s,
            cwd=cwd,
            environment={**self._environment, **environment},
        )
        out, err = ended.out.decode(), ended.err.decode()
        assert ended.code == expect_code, f"code {ended.code}\n{out}\n{err}"
        if stderr is not None:
            assert err == stderr
        return out

    def end_of(
        self,
        folder: Path,
        script: str,
        *arguments: str | bytes,
        environment: dict[str, str],
        timeout_s: float = 160.0,
        cwd: Path | None = None,
    ) -> Ended:
        """Run a script to its end, with its standard input empty.

        Args:
            folder: for the script and what it writes.
            environment: all of it.
        """
        file = folder / "child.py"
        file.write_text(textwrap.dedent(script))
        job: dict[str, Any] = {name: str(folder / name) for name in ("out", "err", "pid")}
        job["argv"] = [str(file), *map(os.fsdecode, arguments)]
        job["environment"] = environment
        job["cwd"] = str(cwd or Path.cwd())
        pid_file = folder / "pid"
        pid_file.unlink(missing_ok=True)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        ended = bool(select.select([self._process.stdout], [], [], timeout_s)[0])
        if not ended:
            pid = int(pid_file.read_text())
            os.kill(pid, signal.SIGABRT)  # faulthandler says where every thread is
            if not select.select([self._process.stdout], [], [], 5)[0]:
                os.kill(pid, signal.SIGKILL)
        code = int(self._process.stdout.readline())
        # What it has started ends with it, whatever happens.
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
            os.killpg(int(pid_file.read_text()), signal.SIGKILL)
        out, err = ((folder / name).read_bytes() for name in ("out", "err"))
        assert ended, f"no end within {timeout_s} s\n{out.decode()}\n{err.decode()}"
        return Ended(code, out, err)
