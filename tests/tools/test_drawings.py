"""The pictures of the documentation are those that their scripts draw, and pages show all."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DRAWINGS = ROOT / "docs" / "drawings"
WORDS = re.compile(r"<text[^>]*>([^<]*)</text>")


def test_they_say_what_the_script_draws(tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(ROOT / "tools" / "drawings.py"), str(tmp_path)], check=True)
    drawn = {path.name: WORDS.findall(path.read_text()) for path in tmp_path.iterdir()}
    kept = {path.name: WORDS.findall(path.read_text()) for path in DRAWINGS.glob("*.svg")}
    assert kept == drawn, "run tools/drawings.py"
    assert all(words for words in kept.values())


@pytest.mark.parametrize("drawing", sorted(path.name for path in DRAWINGS.glob("*.svg")))
def test_a_page_shows_it(drawing: str) -> None:
    pages = [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]
    assert any(f"drawings/{drawing})" in page.read_text() for page in pages)


def test_the_comparisons_are_those_of_the_kept_measurements(tmp_path: Path) -> None:
    script = ROOT / "bench" / "scripts" / "plot_comparisons.py"
    subprocess.run([sys.executable, str(script), str(tmp_path / "drawn.svg")], check=True)
    drawn = WORDS.findall((tmp_path / "drawn.svg").read_text())
    kept = (ROOT / "docs" / "measurements" / "comparisons.svg").read_text()
    assert WORDS.findall(kept) == drawn, "run bench/scripts/plot_comparisons.py"
    assert "14,738" in drawn
