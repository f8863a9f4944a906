"""Prints how long every stage took and how many tests passed; CI ends with its output.

Time is a budget: a stage that takes longer than its own is marked, and one that takes three times
as much fails, which no slower or busier machine explains, as does a stage without a budget. The
figures are seconds on two cores that do nothing else, with nothing built and nothing downloaded
before.
`FRESH_S` and `WARM_S` are for all of it; they are less than the sum, since stages overlap and not
all of them have a bad day at once.
"""

from __future__ import annotations

import os
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

REPORTS = Path(__file__).parent.parent / "build" / "reports"

FAILS_AT = 3
FRESH_S, WARM_S = 55 * 60, 45 * 60
BUDGETS_S = {
    "deps": 60,
    "servers": 720,
    "venv": 180,
    "build-engine": 240,
    "build": 360,
    "build-fault-server": 120,
    "layer-build": 120,
    "layer-tests": 150,
    "cpp-tests": 150,
    "python-tests": 1000,
    "quick-tests": 150,
    "demo": 240,
    "lint": 60,
    "types": 90,
    "docs": 30,
    "asan-build": 480,
    "asan": 360,
    "tsan-build": 480,
    "tsan": 420,
    "fuzz": 240,
    "tidy": 450,
    "wheel": 420,
    "wheel-tls": 90,
    "wheel-test": 480,
    "torch-smoke": 420,
}


@dataclass
class Stage:
    """One stage; what ran several times, as `demo` does, counts together."""

    seconds: float = 0.0
    passed: bool = True
    judged: str = ""

    def judge(self, budget_s: float | None) -> None:
        """Hold it against its budget."""
        if not self.passed:
            self.judged = "FAILED"
        elif budget_s is None:
            self.judged, self.passed = "NO BUDGET: tools/summary.py has the table", False
        elif self.seconds > budget_s * FAILS_AT:
            self.judged, self.passed = f"TOO SLOW: more than {FAILS_AT:g} budgets", False
        elif self.seconds > budget_s:
            self.judged = "slow: above its budget"


def read_stages(lines: list[str]) -> tuple[dict[str, Stage], float]:
    """The stages by name, and the seconds from the first begin to the last end."""
    stages: dict[str, Stage] = {}
    begins, ends = [], []
    for line in lines:
        name, seconds, verdict, end = line.split("\t")
        stage = stages.setdefault(name, Stage())
        stage.seconds += float(seconds)
        stage.passed = stage.passed and verdict == "passed"
        begins.append(float(end) - float(seconds))
        ends.append(float(end))
    return stages, max(ends) - min(begins) if ends else 0.0


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
    """Print it all; 1 if anything failed, was too slow, or if nothing was tested."""
    stages, elapsed_s = read_stages((REPORTS / "stages.tsv").read_text().splitlines())
    is_warm = os.environ.get("HEADRACE_CI_IS_WARM") == "1"
    for name, stage in stages.items():
        stage.judge(BUDGETS_S.get(name))
    total = Stage(elapsed_s)
    total.judge(WARM_S if is_warm else FRESH_S)
    width = max(map(len, stages), default=5)
    print(f"\n{'':<{width}}   seconds  budget")
    for name, stage in stages.items():
        budget_s = BUDGETS_S.get(name, 0)
        print(f"{name:<{width}}  {stage.seconds:8.1f}  {budget_s:6}  {stage.judged}".rstrip())
    name, budget_s = ("warm", WARM_S) if is_warm else ("fresh", FRESH_S)
    print(f"{name:<{width}}  {total.seconds:8.1f}  {budget_s:6}  {total.judged}".rstrip())
    print()
    counts = [0, 0, 0]
    for report in sorted(REPORTS.glob("*.xml")):
        found = count(report)
        print(f"{report.stem}: {found[0]} passed, {found[1]} failed, {found[2]} skipped")
        counts = [a + b for a, b in zip(counts, found, strict=True)]
    print()
    print(f"{counts[0]} passed, {counts[1]} failed, {counts[2]} skipped")
    fine = total.passed and all(stage.passed for stage in stages.values())
    return 0 if fine and counts[0] and not counts[1] else 1


if __name__ == "__main__":
    sys.exit(main())
