"""The table of the original's faults names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TABLE = Path("tests/compat/faults.md")
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def test_every_test_of_the_table_exists(repository: Path) -> None:
    rows = [
        line
        for line in (repository / TABLE).read_text().splitlines()
        if line.startswith("| ") and not line.startswith(("| ---", "| with dataflux"))
    ]
    assert len(rows) > 20
    for row in rows:
        found = TEST.findall(row)
        assert found, f"no test: {row}"
        for file, name in found:
            assert re.search(rf"^def {name}\(", (repository / file).read_text(), re.MULTILINE), name


@pytest.mark.parametrize("file", ["tests/compat/test_faults.py"])
def test_every_test_of_a_fault_is_in_the_table(repository: Path, file: str) -> None:
    names = re.findall(r"^def (test_\w+)\(", (repository / file).read_text(), re.MULTILINE)
    listed = {name for _, name in TEST.findall((repository / TABLE).read_text())}
    assert sorted(set(names) - listed) == []
