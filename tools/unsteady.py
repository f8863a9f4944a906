"""Runs tests again that failed by an assertion: who passes twice, alone, is *unsteady*.

A crash, a sanitizer's report, a hang, wrong bytes and what hypothesis found count at once and are
never run again. A run may have three unsteady tests; with a fourth it fails. Each is written into
tests/unsteady.md with the day on which it was first seen, and may stand there for seven days: then
it counts as failed.

    tools/unsteady.py pytest REPORT...      those of runs of pytest that failed
    tools/unsteady.py ctest PRESET REPORT   after ctest, whose own output is in REPORT's .log
    tools/unsteady.py list                  the unsteady tests of this run, with their first output
    tools/unsteady.py check                 tests/unsteady.md can be read, and nothing is overdue

It ends with 0 if no test has failed in the end. The reports then count unsteady tests as passed,
and `unsteady-REPORT.json` beside them says what they were.
"""

from __future__ import annotations

import datetime
import json
import os
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REPORTS = Path(os.environ.get("HEADRACE_REPORTS", ROOT / "build" / "reports"))
LISTED = Path(os.environ.get("HEADRACE_UNSTEADY", ROOT / "tests" / "unsteady.md"))

MOST_IN_A_RUN = 3
RUNS_ALONE = 2
MAY_STAND = datetime.timedelta(days=7)
TOLD_LINES = 60  # of the first output, at the end of a run

# Records of other runs do not count: make gives each run a name.
RUN = os.environ.get("HEADRACE_RUN", "")

_ROW = re.compile(r"^\| (\d{4}-\d{2}-\d{2}) \| `([^`]+)` \|")
_SANITIZER = re.compile(r"Sanitizer|: runtime error: |DEADLYSIGNAL|libFuzzer")
# An assertion may be about content if it prints a text or a container, or names what has content.
_MAYBE_BYTES = re.compile(
    r"kCorrupt|crc\w*|checksum|digest|md5|sha256|\bbody\b|\bcontents?_?\b|\bbytes_\b"
    r'|Which is: (?:"|\{)|-byte object|^\s*"|equal\(',
    re.I | re.M,
)
# Of a child process, as `waitpid` gives it.
_CHILD = re.compile(r"^  status$", re.M)
_VERDICT = re.compile(r"^ *\d+/\d+ Test +#\d+: (.+?) \.+(.*?) +[\d.]+ sec")


@dataclass
class Failure:
    """A test that failed in a report."""

    test: str
    kind: str
    """`assertion`, or why it is not run again."""
    output: str


def read_listed(text: str) -> dict[str, datetime.date]:
    """Return the tests of tests/unsteady.md, and since when each is there.

    Raises:
        ValueError: a row of the table cannot be read.
    """
    found = {}
    for line in text.splitlines():
        if not line.startswith("|") or set(line) <= set("| -") or line.startswith("| since "):
            continue
        row = _ROW.match(line)
        if row is None:
            raise ValueError(f"not a row of the form | 2026-01-31 | `test` | cause |: {line}")
        found[row[2]] = datetime.date.fromisoformat(row[1])
    return found


def overdue(listed: dict[str, datetime.date], today: datetime.date) -> list[str]:
    """Return the tests that have stood there for too long."""
    return [test for test, since in listed.items() if today - since > MAY_STAND]


def _output(case: ElementTree.Element) -> str:
    parts = []
    for tag in ("failure", "error", "system-out", "system-err"):
        for each in case.findall(tag):
            parts += [each.text or each.get("message", "")]
    return "\n".join(part.strip() for part in parts if part.strip())


def failed_cases(tree: ElementTree.ElementTree) -> list[ElementTree.Element]:
    """Return the cases of a JUnit report that failed, or did not even begin."""
    return [
        case
        for case in tree.iter("testcase")
        if case.find("failure") is not None
        or case.find("error") is not None
        or (case.get("status") == "notrun" and not _skipped_itself(case))
    ]


def _skipped_itself(case: ElementTree.Element) -> bool:
    """Return whether ctest knows by its output that a test has skipped itself."""
    skipped = case.find("skipped")
    return skipped is not None and skipped.get("message", "").startswith("SKIP_")


def of_pytest(case: ElementTree.Element) -> Failure:
    """Return what testing/failure_kinds.py says of it."""
    told: dict[str, list[str]] = {"nodeid": [], "kind": []}
    for each in case.iter("property"):
        told.setdefault(each.get("name", ""), []).append(each.get("value", ""))
    name = f"{case.get('classname')}.{case.get('name')}"
    # Both the test and its end may have failed.
    kinds = [kind for kind in told["kind"] if kind != "assertion"] or told["kind"]
    return Failure(
        told["nodeid"][0] if told["nodeid"] else name,
        kinds[0] if kinds else "its process ended",
        _output(case),
    )


def verdicts(log: str) -> dict[str, str]:
    """Return how ctest says that each test ended: ``***Failed``, ``***Timeout`` ..."""
    found = map(_VERDICT.match, log.splitlines())
    return {each[1]: each[2] for each in found if each}


def reader_of_ctest(log: str) -> Callable[[ElementTree.Element], Failure]:
    """Return what says how a GoogleTest failed: by its output, and by how its process ended."""
    ended = verdicts(log)

    def of_ctest(case: ElementTree.Element) -> Failure:
        name, output = case.get("name", ""), _output(case)
        asserted = re.search(r"^\S+:\d+: Failure$", output, re.M)
        blocks = _assertions(output)
        if _SANITIZER.search(output):
            kind = "sanitizer"
        elif (
            ended.get(name) != "***Failed"
            or asserted is None
            or "[  FAILED  ] 1 test, listed below" not in output
            or any(map(_CHILD.search, blocks))
        ):
            kind = "crash or hang"
        elif "C++ exception with" in output or "unknown file: Failure" in output:
            kind = "exception"
        elif any(map(_MAYBE_BYTES.search, blocks)):
            kind = "wrong bytes"
        else:
            kind = "assertion"
        return Failure(name, kind, output)

    return of_ctest


def _assertions(output: str) -> list[str]:
    """Return what each failed assertion printed: up to an empty line or a line of GoogleTest."""
    return re.findall(r"^\S+:\d+: Failure\n(.*?)(?=\n\n|\n\[|\Z)", output, re.M | re.S)


def run_pytest_alone(failure: Failure) -> bool:
    """Run it in a process of its own; whether it passed."""
    command = [sys.executable, "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider"]
    done = subprocess.run([*command, "-m", "", failure.test], check=False)
    return done.returncode == 0


def run_ctest_alone(preset: str) -> Callable[[Failure], bool]:
    """Return what runs a test of this preset; its folder, for a path."""
    folder = preset if "/" in preset else str(ROOT / "build" / preset)

    def run(failure: Failure) -> bool:
        name = re.sub(r"([][.*+?()^$|\\])", r"\\\1", failure.test)
        command = ["ctest", "--test-dir", folder, "--output-on-failure", "--no-tests=error"]
        return subprocess.run([*command, "-R", f"^{name}$"], check=False).returncode == 0

    return run


def on_record() -> list[dict[str, str]]:
    """Return the unsteady tests of this run so far."""
    return [
        each
        for path in sorted(REPORTS.glob("unsteady-*.json"))
        for each in json.loads(path.read_text())
        if each["run"] == RUN
    ]


def judge(
    reports: list[Path],
    read: Callable[[ElementTree.Element], Failure],
    run_alone: Callable[[Failure], bool],
    today: datetime.date,
) -> bool:
    """Run again what may be, and write down what was unsteady; whether no test has failed."""
    listed = read_listed(LISTED.read_text()) if LISTED.exists() else {}
    late = overdue(listed, today)
    trees = {path: ElementTree.parse(path) for path in reports if path.exists()}
    records = {path: path.with_name(f"unsteady-{path.stem}.json") for path in reports}
    found = []
    fine = True
    for path in reports:
        records[path].unlink(missing_ok=True)
        cases = failed_cases(trees[path]) if path in trees else []
        found += [(path, case, read(case)) for case in cases]
        if not cases:
            print(f"FAILED: a test stage, and {path.name} does not say of which test")
            fine = False
    again = []
    for path, case, failure in found:
        if failure.kind != "assertion":
            print(f"FAILED {failure.test}: {failure.kind}, which is not run again")
            fine = False
        elif failure.test in late:
            print(
                f"FAILED {failure.test}: in tests/unsteady.md since {listed[failure.test]}, which "
                f"is more than {MAY_STAND.days} days"
            )
            fine = False
        else:
            again.append((path, case, failure))
    before = len(on_record())
    if before + len(again) > MOST_IN_A_RUN:
        for _, _, failure in again:
            print(f"FAILED {failure.test}")
        print(
            f"{before + len(again)} tests failed by an assertion in this run. Up to "
            f"{MOST_IN_A_RUN} run again."
        )
        return False
    unsteady: dict[Path, list[dict[str, str]]] = {}
    for path, case, failure in again:
        print(
            f"\n{failure.test} failed by an assertion; {RUNS_ALONE} runs alone decide", flush=True
        )
        if not all(run_alone(failure) for _ in range(RUNS_ALONE)):
            print(f"FAILED {failure.test}: alone, too")
            fine = False
            continue
        for tag in ("failure", "error"):
            for each in case.findall(tag):
                case.remove(each)
        case.set("status", "unsteady")
        unsteady.setdefault(path, []).append({**asdict(failure), "run": RUN})
        since = listed.get(failure.test)
        where = f"since {since}" if since else "not yet: add the row below"
        print(
            f"UNSTEADY {failure.test}: passed {RUNS_ALONE} times alone (tests/unsteady.md: {where})"
        )
        if not since:
            print(f"| {today} | `{failure.test}` | the cause, once known |")
    for path, failures in unsteady.items():
        records[path].write_text(json.dumps(failures, indent=1))
        trees[path].write(path, encoding="utf-8", xml_declaration=True)
    return fine


def tell() -> None:
    """Print what was unsteady in this run, each with the end of its first output."""
    for each in on_record():
        print(f"\nUNSTEADY {each['test']}, which first said:")
        lines = each["output"].splitlines()
        if len(lines) > TOLD_LINES:
            lines = [f"... {len(lines) - TOLD_LINES} lines before", *lines[-TOLD_LINES:]]
        print("\n".join(f"    {line}" for line in lines))


def check(today: datetime.date) -> bool:
    """Whether tests/unsteady.md is in order; say what is not."""
    listed = read_listed(LISTED.read_text())
    late = overdue(listed, today)
    for test in late:
        print(
            f"{LISTED.name}: {test} has been unsteady since {listed[test]}. Mend it (make what it "
            "waits for an event, a count or a fake clock) and take its row out.",
            file=sys.stderr,
        )
    return not late


def day_of(run: str) -> datetime.date:
    """Return the day on which a run began, which may last beyond midnight: it is named by that."""
    began_s = int(run) / 1e9 if run else time.time()
    return datetime.datetime.fromtimestamp(began_s, datetime.UTC).date()


def main(arguments: list[str]) -> int:
    """Do what the first argument says."""
    today = day_of(RUN)
    match arguments:
        case ["pytest", *reports] if reports:
            fine = judge([Path(each) for each in reports], of_pytest, run_pytest_alone, today)
        case ["ctest", preset, report]:
            log = Path(report).with_suffix(".log").read_text()
            fine = judge([Path(report)], reader_of_ctest(log), run_ctest_alone(preset), today)
        case ["list"]:
            fine = True
        case ["check"]:
            return 0 if check(today) else 1
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    tell()
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
