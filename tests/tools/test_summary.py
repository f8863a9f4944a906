"""What CI says of its times."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools import summary

CASES = '<testsuite><testcase name="a"/><testcase name="b"><skipped/></testcase>{more}</testsuite>'


@pytest.fixture
def reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(summary, "REPORTS", tmp_path)
    monkeypatch.setattr(summary, "BUDGETS_S", {"build": 100, "tests": 10})
    (tmp_path / "pytest.xml").write_text(CASES.format(more=""))
    return tmp_path


def stages(*lines: tuple[str, float, str, float]) -> str:
    return "".join("\t".join(map(str, line)) + "\n" for line in lines)


def test_a_stage_within_its_budget_passes(
    reports: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (reports / "stages.tsv").write_text(stages(("build", 99.0, "passed", 199.0)))
    assert summary.main() == 0
    told = capsys.readouterr().out
    assert "slow" not in told.lower()
    assert "1 passed, 0 failed, 1 skipped" in told


@pytest.mark.parametrize(
    ("seconds", "code", "word"), [(299.0, 0, "slow: above its budget"), (301.0, 1, "TOO SLOW")]
)
def test_a_stage_is_marked_as_slow_before_it_fails_at_three_budgets(
    reports: Path, capsys: pytest.CaptureFixture[str], seconds: float, code: int, word: str
) -> None:
    (reports / "stages.tsv").write_text(stages(("build", seconds, "passed", 1000.0)))
    assert summary.main() == code
    assert word in capsys.readouterr().out


def test_what_ran_twice_counts_together(reports: Path) -> None:
    (reports / "stages.tsv").write_text(
        stages(("tests", 16.0, "passed", 116.0), ("tests", 16.0, "passed", 132.0))
    )
    assert summary.main() == 1


def test_overlapping_stages_do_not_add_up(capsys: pytest.CaptureFixture[str]) -> None:
    found, elapsed_s = summary.read_stages(
        stages(("a", 60.0, "passed", 160.0), ("b", 50.0, "passed", 155.0)).splitlines()
    )
    assert {name: stage.seconds for name, stage in found.items()} == {"a": 60.0, "b": 50.0}
    assert elapsed_s == 60.0


@pytest.mark.parametrize(
    ("line", "word"),
    [
        (("build", 1.0, "failed", 1.0), "FAILED"),
        (("new", 1.0, "passed", 1.0), "NO BUDGET"),
    ],
)
def test_a_failed_stage_and_one_without_a_budget_fail(
    reports: Path,
    capsys: pytest.CaptureFixture[str],
    line: tuple[str, float, str, float],
    word: str,
) -> None:
    (reports / "stages.tsv").write_text(stages(line))
    assert summary.main() == 1
    assert word in capsys.readouterr().out


def test_a_failed_test_or_none_at_all_fails(reports: Path) -> None:
    (reports / "stages.tsv").write_text(stages(("build", 1.0, "passed", 1.0)))
    (reports / "other.xml").write_text(CASES.format(more='<testcase name="c"><error/></testcase>'))
    assert summary.main() == 1
    (reports / "other.xml").unlink()
    (reports / "pytest.xml").unlink()
    assert summary.main() == 1


@pytest.mark.parametrize(("is_warm", "code"), [("", 0), ("1", 1)])
def test_all_of_it_has_a_budget_too(
    reports: Path, monkeypatch: pytest.MonkeyPatch, is_warm: str, code: int
) -> None:
    monkeypatch.setenv("HEADRACE_CI_IS_WARM", is_warm)
    end = summary.WARM_S * 3.05
    (reports / "stages.tsv").write_text(
        stages(("build", 1.0, "passed", 1.0), ("tests", 1.0, "passed", end))
    )
    assert summary.main() == code


def test_every_stage_of_the_makefile_has_a_budget() -> None:
    root = Path(__file__).resolve().parent.parent.parent
    text = (root / "Makefile").read_text() + (root / "tools" / "prepare.sh").read_text()
    named = set(re.findall(r"(?:\$\(STAGE\)|tools/stage\.sh) ([a-z-]+) ", text))
    assert {"build", "python-tests", "torch-smoke"} <= named
    assert named - {"soak", "bench"} == {*summary.BUDGETS_S}
