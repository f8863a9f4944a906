"""``python -m headrace.demo [URL]``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from headrace.demo.job import main


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="headrace.demo", description=main.__doc__)
    parser.add_argument("url", nargs="?", help="a folder or a prefix in a bucket, without objects")
    parser.add_argument("--shards", action="store_true", help="put the images into tar shards")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument(
        "--no-stop", dest="stop", action="store_false", help="train once, in one go"
    )
    parser.add_argument("--keep", action="store_true", help="do not delete the objects afterwards")
    parser.add_argument("--plot", type=Path, default=Path("demo.png"))
    parser.add_argument("--json", type=Path, help="also write what was counted to this file")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main(**vars(_arguments())))
