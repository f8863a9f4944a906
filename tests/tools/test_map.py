"""src/headrace/README.md, the map of the engine, names what there is."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ENGINE = ROOT / "src" / "headrace"


def test_the_map_names_tests_that_exist() -> None:
    text = (ENGINE / "README.md").read_text()
    section = text.partition("\n## Where the tests are\n")[2].partition("\n## ")[0]
    column = "".join(line.split("|")[2] for line in section.splitlines() if line.startswith("| `"))
    named = re.findall(r"`([^`]*_test\.cc|tests/[^`]*)`", column)
    assert len(named) > 20
    missing = [
        name
        for name in named
        if not (ROOT / name).exists() and not any(ENGINE.rglob(Path(name).name))
    ]
    assert missing == []
