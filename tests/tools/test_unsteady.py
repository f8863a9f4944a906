"""What runs again when it has failed, and what does not."""

from __future__ import annotations

import datetime
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tools import unsteady

ROOT = Path(__file__).resolve().parent.parent.parent
TODAY = datetime.date(2026, 2, 1)
# A run of that day; it is named by the moment at which it began.
BEGAN_NS = str(int(datetime.datetime(2026, 2, 1, 23, 59, tzinfo=datetime.UTC).timestamp()) * 10**9)

# Each says how often it has run, in a file, and fails as its name says.
TESTS = """
import os, pathlib, time
import pytest
import hypothesis
from hypothesis import strategies

def runs(name):
    path = pathlib.Path(__file__).with_name(name + ".runs")
    count = len(path.read_text()) if path.exists() else 0
    path.write_text("x" * (count + 1))
    return count + 1

def fails_once(name):
    assert runs(name) != 1, f"{name} failed"

def test_fine():
    runs("fine")

def test_once():
    fails_once("once")

@pytest.fixture
def unready():
    fails_once("unready")

def test_unready(unready):
    pass

def test_raises_nothing_once():
    with pytest.raises(ValueError):
        if runs("raises_nothing_once") != 1:
            raise ValueError

def test_twice():
    assert runs("twice") > 2

def test_always():
    assert not runs("always")

def test_exception():
    if runs("exception") == 1:
        raise ConnectionError("reset")

def test_crash_of_a_child():
    import subprocess, sys
    runs("crash_of_a_child")
    done = subprocess.run([sys.executable, "-c", "import os; os.abort()"])
    assert done.returncode == 0

def test_end_of_a_child():
    import subprocess, sys
    runs("end_of_a_child")
    assert subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"]).wait() == 0

def test_signal_of_a_child():
    import subprocess, sys
    runs("signal_of_a_child")
    code = subprocess.Popen([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]).wait()
    assert code == 0

def test_bytes_in_a_child():
    import subprocess, sys
    runs("bytes_in_a_child")
    text = "import pathlib\\nassert pathlib.Path('child.py').read_bytes() == 1"
    pathlib.Path("child.py").write_text(text)
    done = subprocess.run([sys.executable, "child.py"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

def test_exception_in_a_child():
    import subprocess, sys
    runs("exception_in_a_child")
    pathlib.Path("child.py").write_text("assert True\\n{}['a']")
    done = subprocess.run([sys.executable, "child.py"], capture_output=True, text=True)
    assert done.returncode == 0, f"code {done.returncode}\\n{done.stderr}"

def test_assertion_in_a_child_once():
    import signal, subprocess, sys
    path = pathlib.Path("child.py")
    path.write_text(f"assert {runs('assertion_in_a_child_once')} != 1")
    child = subprocess.Popen([sys.executable, str(path)], stderr=subprocess.PIPE, text=True)
    try:
        _, told = child.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        child.send_signal(signal.SIGABRT)
        raise AssertionError("no end, nor a CorruptDataError") from None
    assert child.returncode == 0, f"code {child.returncode}\\n{told}"

def test_comparison_in_a_child():
    import subprocess, sys
    runs("comparison_in_a_child")
    pathlib.Path("child.py").write_text("found = [2]\\nassert found == [3]")
    done = subprocess.run([sys.executable, "child.py"], capture_output=True, text=True)
    assert done.returncode == 0, f"code {done.returncode}\\n{done.stderr}"

def end_late():
    import time
    time.sleep(600)

def test_hang_of_a_child():
    import multiprocessing
    runs("hang_of_a_child")
    child = multiprocessing.Process(target=end_late, daemon=True)
    child.start()
    child.join(0.1)
    assert child.exitcode == 0, child.exitcode

def test_failed_without_a_traceback():
    runs("failed_without_a_traceback")
    pytest.fail("no end within 60 s", pytrace=False)

def test_set_of_bytes():
    assert {b"ab"} == {b"ab" if runs("set_of_bytes") > 1 else b"ac"}

def test_crash():
    if runs("crash") == 1:
        os.abort()

def test_bytes():
    assert b"ab" == (b"ab" if runs("bytes") > 1 else b"ac")

def test_list_of_bytes():
    assert [b"ab"] == [b"ab" if runs("list_of_bytes") > 1 else b"ac"]

def test_checksum():
    crc32c = 1
    assert crc32c == runs("checksum") - 1

def test_sanitizer():
    runs("sanitizer")
    print("==1==ERROR: AddressSanitizer: heap-use-after-free")
    assert False

@pytest.mark.timeout(1)
def test_hang():
    if runs("hang") == 1:
        time.sleep(60)

@hypothesis.given(strategies.integers())
def test_searched(number):
    if number == 0:
        assert runs("searched") > 1
"""


class Suite:
    """A folder with these tests, run as `tools/pytest.sh` runs ours."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.reports = folder / "build" / "reports"
        self.listed = folder / "unsteady.md"
        self.reports.mkdir(parents=True)
        (folder / "conftest.py").write_text((ROOT / "conftest.py").read_text())
        (folder / "test_it.py").write_text(TESTS)
        self.environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            # Each start loads only what is used.
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTEST_ADDOPTS": "-p pytest_timeout -p _hypothesis_pytestplugin",
            "HEADRACE_REPORTS": str(self.reports),
            "HEADRACE_RUN": BEGAN_NS,
            "HEADRACE_UNSTEADY": str(self.listed),
        }

    def list(self, *rows: str) -> None:
        self.listed.write_text("| since | test | cause |\n| --- | --- | --- |\n" + "\n".join(rows))

    def judge(self, *names: str) -> tuple[int, str]:
        """Run these tests, then the rule: its exit code, and what it said."""
        path = self.reports / "pytest.xml"
        tests = [f"test_it.py::test_{name}" for name in names]
        command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={path}", *tests]
        # A process of xdist, so that a crash is survived and seen, as in ours.
        done = self._run([*command, "-p", "xdist", "--numprocesses=1"])
        assert done.returncode == 1, done.stdout
        done = self._run([sys.executable, str(ROOT / "tools" / "unsteady.py"), "pytest", str(path)])
        return done.returncode, done.stdout + done.stderr

    def runs(self, name: str) -> int:
        """Return how often this test has run."""
        return len((self.folder / f"{name}.runs").read_text())

    def _run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    return Suite(tmp_path)


def test_tests_that_fail_once_are_unsteady_and_told_with_their_first_output(suite: Suite) -> None:
    since = TODAY - datetime.timedelta(days=7)
    suite.list(f"| {since} | `test_it.py::test_unready` | unknown |")
    code, told = suite.judge("fine", "once", "unready", "raises_nothing_once")
    assert code == 0
    assert [suite.runs(each) for each in ("fine", "once", "unready")] == [1, 3, 3]
    assert "UNSTEADY test_it.py::test_once: passed 2 times alone" in told
    assert "AssertionError: once failed" in told.partition("which first said:")[2]
    assert f"| {TODAY} | `test_it.py::test_once` |" in told  # the row to add
    assert f"tests/unsteady.md: since {since}" in told
    # The report counts them as passed.
    assert "<failure" not in (suite.reports / "pytest.xml").read_text()


def test_what_the_source_of_a_test_names_is_no_kind_of_its_failure(suite: Suite) -> None:
    suite.list()
    code, told = suite.judge("assertion_in_a_child_once")
    assert code == 0, told
    assert suite.runs("assertion_in_a_child_once") == 3


def test_what_fails_alone_too_or_is_listed_for_longer_than_seven_days_has_failed(
    suite: Suite,
) -> None:
    since = TODAY - datetime.timedelta(days=8)
    suite.list(f"| {since} | `test_it.py::test_once` | unknown |")
    code, told = suite.judge("always", "twice", "once")
    assert code == 1
    for name in ("always", "twice"):
        assert f"FAILED test_it.py::test_{name}: alone, too" in told
    assert f"in tests/unsteady.md since {since}, which is more than 7 days" in told
    assert [suite.runs(each) for each in ("always", "twice", "once")] == [2, 2, 1]
    assert (suite.reports / "pytest.xml").read_text().count("<failure") == 3


def test_all_other_kinds_of_failures_count_at_once_and_are_not_run_again(suite: Suite) -> None:
    kinds = {
        "crash": "its process ended",
        "crash_of_a_child": "crash",
        "signal_of_a_child": "crash",
        "end_of_a_child": "end of a child",
        "exception_in_a_child": "exception KeyError in a child",
        "comparison_in_a_child": "comparison in a child",
        "hang_of_a_child": "hang",
        "failed_without_a_traceback": "hang",
        "bytes_in_a_child": "wrong bytes",
        "set_of_bytes": "wrong bytes",
        "bytes": "wrong bytes",
        "list_of_bytes": "wrong bytes",
        "checksum": "wrong bytes",
        "sanitizer": "crash",
        "hang": "hang",
        "searched": "hypothesis",
        "exception": "exception ConnectionError",
    }
    code, told = suite.judge(*kinds)
    assert code == 1
    for name, kind in kinds.items():
        assert re.search(rf"FAILED \S*test_{name}: {kind}, which is not run again", told), told
    counts = {name: suite.runs(name) for name in kinds if name != "searched"}
    assert {*counts.values()} == {1}, counts


def test_a_fourth_in_a_run_fails_it_without_more_runs(suite: Suite) -> None:
    # An earlier stage of the run has had two.
    (suite.reports / "unsteady-ctest-release.json").write_text(
        json.dumps([{"test": "Suite.Name", "kind": "assertion", "output": "", "run": BEGAN_NS}] * 2)
    )
    code, told = suite.judge("once", "twice")
    assert code == 1
    assert "4 tests failed by an assertion in this run" in told
    assert [suite.runs(each) for each in ("once", "twice")] == [1, 1]


def test_the_list_is_in_order_and_nothing_in_it_is_overdue() -> None:
    assert unsteady.check(datetime.datetime.now(datetime.UTC).date())


def test_lint_fails_for_what_is_overdue_or_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = tmp_path / "unsteady.md"
    monkeypatch.setattr(unsteady, "LISTED", listed)
    listed.write_text("| 2026-01-31 | `tests/a.py::test_b` | a timer |")
    assert unsteady.check(datetime.date(2026, 2, 7))
    assert not unsteady.check(datetime.date(2026, 2, 8))
    assert "tests/a.py::test_b has been unsteady since 2026-01-31" in capsys.readouterr().err
    listed.write_text("| yesterday | `tests/a.py::test_b` | a timer |")
    with pytest.raises(ValueError, match="not a row of the form"):
        unsteady.check(datetime.date(2026, 2, 7))


# ---- C++

ASSERTION = (
    "{file}:12: Failure\nExpected equality of these values:\n  {what}\n    Which is: 3\n  2\n\n"
    "[  FAILED  ] Suite.Name (0 ms)\n[  FAILED  ] 1 test, listed below:\n"
)


@pytest.fixture
def ctest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., bool]:
    """Runs one shell script as a test of ctest, then the rule; whether it passed in the end."""
    monkeypatch.setattr(unsteady, "REPORTS", tmp_path)
    monkeypatch.setattr(unsteady, "LISTED", tmp_path / "unsteady.md")
    report = tmp_path / "ctest-release.xml"

    def run(script: str) -> bool:
        (tmp_path / "test.sh").write_text("echo x >> runs\n" + script)
        (tmp_path / "CTestTestfile.cmake").write_text(
            'add_test("Suite.Name/0" "sh" "test.sh")\n'
            'set_tests_properties("Suite.Name/0" PROPERTIES TIMEOUT 1 '
            f'WORKING_DIRECTORY "{tmp_path}")\n'
            'add_test("Suite.Name/01" "false")\n'  # whose name begins alike
            'add_test("Suite.Skips" "echo" "[  SKIPPED ]")\n'
            'set_tests_properties("Suite.Skips" PROPERTIES SKIP_REGULAR_EXPRESSION "SKIPPED")\n'
        )
        done = subprocess.run(
            ["ctest", "--test-dir", tmp_path, "--output-junit", report, "-E", "01"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 8
        alone = unsteady.run_ctest_alone(f"{tmp_path}/")
        return unsteady.judge([report], unsteady.reader_of_ctest(done.stdout), alone, TODAY)

    return run


def count_of_runs(folder: Path) -> int:
    return len((folder / "runs").read_text().split())


def test_an_assertion_of_googletest_that_fails_once_is_unsteady(
    ctest: Callable[..., bool], tmp_path: Path
) -> None:
    told = ASSERTION.format(file="/a/x_test.cc", what="connections")
    assert ctest(f"[ $(wc -l < runs) -gt 1 ] || {{ cat << 'END'\n{told}END\nexit 1; }}")
    assert count_of_runs(tmp_path) == 3
    assert "/a/x_test.cc:12: Failure" in unsteady.on_record()[0]["output"]


def test_an_assertion_of_googletest_that_fails_again_has_failed(
    ctest: Callable[..., bool], tmp_path: Path
) -> None:
    told = ASSERTION.format(file="/a/x_test.cc", what="connections")
    assert not ctest(f"cat << 'END'\n{told}END\nexit 1")
    assert count_of_runs(tmp_path) == 2
    assert unsteady.on_record() == []


def told(what: str, value: str = "3") -> str:
    """A script that prints a failed assertion."""
    text = ASSERTION.format(file="/a/x_test.cc", what=what).replace(
        "Which is: 3", f"Which is: {value}"
    )
    return f"cat << 'END'\n{text}END\n"


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        ("kill -SEGV $$", "crash or hang"),
        ("sleep 30", "crash or hang"),
        ("echo '/a/x_test.cc:12: Failure'; kill -ABRT $$", "crash or hang"),
        # After its end, as in the destructor of a static.
        (told("connections") + "kill -SEGV $$", "crash or hang"),
        (told("connections") + "sleep 30", "crash or hang"),
        (told("status") + "exit 1", "crash or hang"),
        ("echo 'WARNING: ThreadSanitizer: data race'; exit 1", "sanitizer"),
        ("echo 'unknown file: Failure'\n" + told("connections") + "exit 1", "exception"),
        (told("crc32c(all)") + "exit 1", "wrong bytes"),
        (told("*read", '"abc"') + "exit 1", "wrong bytes"),
        (told("*read", "{ 1-byte object <61>, 1-byte object <62> }") + "exit 1", "wrong bytes"),
    ],
)
def test_what_else_a_googletest_fails_by_is_not_run_again(
    ctest: Callable[..., bool],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    script: str,
    kind: str,
) -> None:
    assert not ctest(script)
    assert count_of_runs(tmp_path) == 1
    assert f"FAILED Suite.Name/0: {kind}, which is not run again" in capsys.readouterr().out


def test_a_stage_that_failed_without_a_failed_test_has_failed(tmp_path: Path) -> None:
    report = tmp_path / "pytest.xml"
    report.write_text('<testsuite><testcase classname="a" name="b"/></testsuite>')
    assert not unsteady.judge([report], unsteady.of_pytest, lambda _: True, TODAY)


def test_each_report_must_say_which_test_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unsteady, "REPORTS", tmp_path)
    properties = '<properties><property name="kind" value="assertion"/></properties>'
    report, missing = tmp_path / "pytest.xml", tmp_path / "pytest-serial.xml"
    text = f'<t><testcase classname="a" name="b">{properties}<failure/></testcase></t>'
    report.write_text(text)
    assert unsteady.judge([report], unsteady.of_pytest, lambda _: True, TODAY)
    report.write_text(text)
    assert not unsteady.judge([report, missing], unsteady.of_pytest, lambda _: True, TODAY)
