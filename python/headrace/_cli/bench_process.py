"""One process of a measurement: reads as it is told, and says what that took.

`headrace bench --html` starts it as ``python -m headrace._cli.bench_process``. What to do comes
pickled on stdin. It answers with a line once it could begin, waits for a line, and answers with the
pickled `Reads`, or with the error.
"""

from __future__ import annotations

import pickle
import sys


def main() -> None:
    """Carry out one measurement."""
    from headrace import HeadraceError
    from headrace._cli.bench_reads import Reads, read_for

    job = pickle.load(sys.stdin.buffer)
    store, index = job.pop("store"), job.pop("index")
    print("ready", flush=True)
    if sys.stdin.buffer.readline():  # else whoever asked is gone
        found: Reads | HeadraceError
        try:
            found = read_for(store, index, **job)
        except HeadraceError as error:
            found = error
        sys.stdout.buffer.write(pickle.dumps(found))


if __name__ == "__main__":
    main()
