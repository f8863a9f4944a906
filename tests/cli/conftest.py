"""The command `headrace`, run as a user runs it: in a process of its own."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from testing.faultserver.client import FaultServer
from tests.nursery import Nursery

# What a shell, a URL, a terminal or rich could take for something else than a name.
ODD_NAMES = [
    "-dash",
    "50%",
    "[bold]b[/bold]",
    "a&b='c'\"d\"",
    "a:b",
    "back\\slash",
    "dir/..hidden",
    "dir/with space",
    "escape\x1b[31mred",
    "new\nline",
    "plus+plus",
    "q?x=1&y=2",
    "right\u202eleft",
    "sharp#sharp",
    "star*",
    "umlaut/ü日本",
]


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: bytes
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.decode().splitlines()

    @property
    def json(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def json_errors(self) -> list[Any]:
        return [json.loads(line) for line in self.err.splitlines()]


Start = Callable[..., subprocess.Popen[bytes]]
Run = Callable[..., Done]
RunEach = Callable[..., list[Done]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start `headrace` with these arguments; what still runs in the end is killed."""
    started = []

    def start(*arguments: object, **options: Any) -> subprocess.Popen[bytes]:
        environment = {**os.environ, **options.pop("environment", {})}
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen(
            [sys.executable, "-m", "headrace", *map(_text, arguments)],
            env=environment,
            **(pipes | options),
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def _text(argument: object) -> str | bytes:
    return argument if isinstance(argument, bytes) else str(argument)


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    with Nursery("import headrace._cli.app", warnings_are_errors=False) as nursery:
        yield nursery


@pytest.fixture
def run(start: Start, nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run `headrace` to its end: where nothing else is needed, in an interpreter that has imported
    it already.
    """
    folder = tmp_path_factory.mktemp("run")

    def run(*arguments: object, stdin: bytes | None = None, **environment: str) -> Done:
        if stdin is not None:
            return _end(start(*arguments, environment=environment, stdin=subprocess.PIPE), stdin)
        if any(name.startswith("PYTHON") for name in environment):  # read when one begins
            return _end(start(*arguments, environment=environment), None)
        ended = nursery.end_of(
            folder,
            "import headrace.__main__",
            *map(_text, arguments),
            environment={**os.environ, **environment},
        )
        assert b"nanobind" not in ended.err, ended.err
        return Done(ended.code, ended.out, ended.err.decode())

    return run


@pytest.fixture
def run_each(start: Start) -> RunEach:
    """Run several commands at the same time, to their ends."""

    def run_each(*commands: Sequence[object], **environment: str) -> list[Done]:
        started = [start(*arguments, environment=environment) for arguments in commands]
        return [_end(process, None) for process in started]

    return run_each


def _end(process: subprocess.Popen[bytes], stdin: bytes | None) -> Done:
    out, err = process.communicate(stdin, timeout=200)
    assert b"nanobind" not in err, err  # it reports leaks there
    return Done(process.returncode, out, err.decode())


@pytest.fixture
def server(server: FaultServer, monkeypatch: pytest.MonkeyPatch) -> FaultServer:
    """The fault server, which gs:// is, empty and well-behaved."""
    server.bucket("bucket")
    server.bucket("other")
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)
    return server


def kinds(server: FaultServer) -> dict[str, int]:
    """How many requests of each kind there were."""
    found: dict[str, int] = server.stats()["by_kind"]
    return {kind: count for kind, count in found.items() if count}


def on_terminal(start: Start, *arguments: object, **options: Any) -> tuple[int, bytes]:
    """Run it with a terminal as stderr, and return the exit code and what was shown there."""
    leader, follower = pty.openpty()
    process = start(*arguments, stderr=follower, environment={"TERM": "xterm"}, **options)
    os.close(follower)
    shown = b""
    try:
        while chunk := os.read(leader, 65536):
            shown += chunk
    except OSError:  # how a terminal says that its other end is closed
        pass
    finally:
        os.close(leader)
    return process.wait(timeout=120), shown
