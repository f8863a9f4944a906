"""One process of a measurement: reads as it is told, and says what that took.

`headrace bench` starts it, for ``--html``, ``--against`` and ``--ranks``, as
``python -m headrace._cli.bench_process``. What to do comes pickled on stdin. It answers with a line
once it could begin, waits for a line, and answers with the pickled `Reads`, or with the error.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace._cli.bench_reads import Reads


def main() -> None:
    """Carry out one measurement."""
    from headrace import HeadraceError

    # What a function of the user's prints is no answer.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    job = pickle.load(sys.stdin.buffer)
    index = job.pop("index")
    found: Reads | HeadraceError
    read = None
    try:
        read = _reader(job)
    except HeadraceError as error:
        found = error
    answers.write(b"ready\n")
    answers.flush()
    if sys.stdin.buffer.readline():  # else whoever asked is gone
        if read is not None:
            try:
                found = read(index, **job)
            except HeadraceError as error:
                found = error
        answers.write(pickle.dumps(found))
        answers.flush()


def _reader(job: dict[str, Any]) -> Callable[..., Reads]:
    """Take out of `job` who reads."""
    from headrace._cli.bench_reads import read_for

    against = job.pop("against", None)
    if against is None:
        return partial(read_for, job.pop("store"))
    from headrace._cli.bench_against import read_by
    from headrace._cli.packing import function_at

    function_at("--against", against)  # imported before the clock starts
    return partial(read_by, against)


if __name__ == "__main__":
    main()
