"""Prints how long every stage took and how many tests passed; CI ends with its output."""

import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

REPORTS = Path(__file__).parent.parent / "build" / "reports"


def count(report: Path) -> tuple[int, int, int]:
    """Passed, failed and skipped cases of one JUnit file."""
    passed = failed = skipped = 0
    for case in ElementTree.parse(report).iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        elif case.find("skipped") is not None:
            skipped += 1
        else:
            passed += 1
    return passed, failed, skipped


def main() -> int:
    stages = [line.split("\t") for line in (REPORTS / "stages.tsv").read_text().splitlines()]
    width = max((len(name) for name, _, _ in stages), default=0)
    print()
    for name, seconds, verdict in stages:
        print(f"{name:<{width}}  {float(seconds):8.1f} s  {verdict}")
    print(f"{'total':<{width}}  {sum(float(seconds) for _, seconds, _ in stages):8.1f} s")
    print()
    total = [0, 0, 0]
    for report in sorted(REPORTS.glob("*.xml")):
        counts = count(report)
        print(f"{report.stem}: {counts[0]} passed, {counts[1]} failed, {counts[2]} skipped")
        total = [a + b for a, b in zip(total, counts, strict=True)]
    print()
    print(f"{total[0]} passed, {total[1]} failed, {total[2]} skipped")
    return 1 if total[1] or not total[0] or any(v != "passed" for _, _, v in stages) else 0


if __name__ == "__main__":
    sys.exit(main())
