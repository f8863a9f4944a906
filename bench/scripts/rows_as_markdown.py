"""Prints the rows of results as tables for a page of docs/measurements.

rows_as_markdown.py RESULTS.json... [--targets]    with --targets, only rows that have one
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from bench.table import shown_number


def _cells(row: dict[str, Any]) -> list[str]:
    name = row["name"].replace("|", "\\|")
    if row["median"] is None:
        return [name, row["target"], "", "", "ERROR"]
    low, high = shown_number(row["min"]), shown_number(row["max"])
    spread = f"{low} .. {high}" if row["repetitions"] > 1 else "once"
    measured = f"{shown_number(row['median'])} {row['unit']}".strip()
    target = row["target"].replace("<=", "≤").replace(">=", "≥")
    return [name, target, measured, spread, row["verdict"]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--targets", action="store_true")
    arguments = parser.parse_args()
    for file in arguments.results:
        result = json.loads(file.read_text())
        rows = [row for row in result["rows"] if row["target"] or not arguments.targets]
        load = result["machine"]["load_before"][0]
        print(
            f"`{result['command']}`, commit {result['commit'][:7]}, load {load:.1f} at the start\n"
        )
        for group in dict.fromkeys(row["group"] for row in rows):
            print(f"| {group} | target | median | min .. max | |\n| --- | --- | --- | --- | --- |")
            for row in rows:
                if row["group"] == group:
                    print("|", " | ".join(_cells(row)), "|")
            print()


if __name__ == "__main__":
    main()
