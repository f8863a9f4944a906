"""One server process: started on a port that the kernel gave, stopped by its own pid."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

import psutil

REPOSITORY = Path(__file__).resolve().parent.parent.parent


def free_port(host: str = "127.0.0.1") -> int:
    """A port that was free a moment ago; `ServerProcess` tries another if it was taken since."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.bind((host, 0))
        return int(listener.getsockname()[1])


class Running:
    """What runs from when it is made until `stop`, or until the end of a ``with`` block."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End it."""
        raise NotImplementedError


class ServerProcess:
    """Runs `command(port)` until it is ready, and ends it with `stop`.

    Ready is a server that listens on its port, and of which `is_ready(port)` holds if that is
    given. It may raise ConnectionError: MinIO listens for a moment to see whether the port is free,
    hangs up, and listens again.

    The process gets SIGTERM when the thread that started it dies, so a killed test run leaves
    nothing behind.

    Raises:
        RuntimeError: the server ended, or was not ready within `start_timeout_s`; with its output.
    """

    def __init__(
        self,
        command: Callable[[int], Sequence[str]],
        *,
        host: str,
        port: int,
        log_file: Path,
        environment: Mapping[str, str] | None = None,
        is_ready: Callable[[int], bool] | None = None,
        start_timeout_s: float = 80.0,
    ) -> None:
        self._log_file = log_file
        attempts = 1 if port else 5
        for attempt in range(attempts):
            self.port = port or free_port(host)
            with log_file.open("wb") as log:
                # setpriv instead of preexec_fn, which may deadlock where threads are running.
                self._process = subprocess.Popen(
                    ["setpriv", "--pdeathsig", "TERM", *command(self.port)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=environment,
                )
            try:
                if self._becomes_ready(is_ready, start_timeout_s):
                    return
            except BaseException:
                self.stop()
                raise
            self.stop()
            taken = "already in use" in self.output().lower()  # MinIO says it of the port
            if not taken or attempt + 1 == attempts:
                raise RuntimeError(f"{' '.join(command(self.port))} did not start: {self.output()}")

    def _becomes_ready(self, is_ready: Callable[[int], bool] | None, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while self._process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(ConnectionError):
                if self._listens() and (is_ready is None or is_ready(self.port)):
                    return True
            time.sleep(0.01)
        return False

    def _listens(self) -> bool:
        # Asked of the kernel, not by connecting: whoever had the port before would answer too.
        with contextlib.suppress(psutil.NoSuchProcess):
            for socket_ in psutil.Process(self._process.pid).net_connections("tcp"):
                if socket_.status == psutil.CONN_LISTEN and socket_.laddr.port == self.port:
                    return True
        return False

    @property
    def pid(self) -> int:
        """The process that was started (nginx: the master)."""
        return self._process.pid

    def output(self) -> str:
        """What the server has printed so far."""
        return self._log_file.read_text(errors="replace") if self._log_file.exists() else ""

    def stop(self) -> None:
        """End the process; a second call does nothing."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(timeout=20.0)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait()


class S3InFolder(Running):
    """A server that speaks S3, on an empty folder that goes away with it.

    `url` is its endpoint, for `access_key` and `secret_key`.
    """

    access_key, secret_key = "headrace", "headrace-password"

    def __init__(self, name: str, command: Callable[[Path, int], Sequence[str]]) -> None:
        """Start what `command` says for the folder and a port."""
        self._folder = tempfile.TemporaryDirectory(prefix=f"headrace-{name}-")
        self.folder = Path(self._folder.name)
        try:
            self._process = ServerProcess(
                lambda port: command(self.folder, port),
                host="127.0.0.1",
                port=0,
                log_file=self.folder / f"{name}.log",
            )
        except BaseException:
            self._folder.cleanup()
            raise
        self.url = f"http://127.0.0.1:{self._process.port}"

    def make_bucket(self, name: str) -> None:
        """Make an empty bucket, without a signature."""
        urllib.request.urlopen(urllib.request.Request(f"{self.url}/{name}", method="PUT")).close()

    def stop(self) -> None:
        """End it, and remove what it keeps."""
        self._process.stop()
        self._folder.cleanup()
