"""The command `headrace`. Nothing of it is imported by `import headrace`.

app       the commands and their options, as typer sees them
location  what a URL on the command line means
wildcards what its wildcards match
listing   `ls`
telling   `stat`, `du`, `index`
reading   `cat`
copying   `cp` and `mv`: what goes where, and small objects
syncing   `sync`
large     large objects: ranges into files, parts to buckets
part_file a large file until it is whole, also over an interruption
removing  `rm`
cleaning  `clean`
bench     `bench`
workers   threads that wait for the engine, bounded, ended by Ctrl-C
progress  the bar of `cp` and `rm`
report    what is printed, warnings, and exit codes
"""

from __future__ import annotations

import io
import os
import signal
import sys
from types import FrameType

__all__ = ["main"]


def main() -> int:
    """Run the command line of this process; return the exit code."""
    try:
        signal.signal(signal.SIGTERM, _terminate)
        if sys.stderr is None:
            sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - to the end of the process
        if sys.stdout is None:
            print("headrace: stdout is closed", file=sys.stderr)
            return 1
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(
                    errors="backslashreplace"
                )  # of names, where ASCII is all there is
        try:
            from headrace._cli.app import app
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] not in ("typer", "rich"):
                raise
            print(
                f"headrace: the command line needs {error.name}: pip install 'headrace[cli]'",
                file=sys.stderr,
            )
            return 2
        app(prog_name="headrace")
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return 0


def _terminate(number: int, _frame: FrameType | None) -> None:
    # As an exception, so that what is being written is put away.
    raise SystemExit(128 + number)
