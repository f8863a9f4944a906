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


def test_the_page_of_what_others_published_is_that_of_the_kept_measurements(tmp_path: Path) -> None:
    script = ROOT / "bench" / "scripts" / "published_page.py"
    (results,) = (ROOT / "docs" / "measurements").glob("*-published.json")
    subprocess.run([sys.executable, str(script), str(results), str(tmp_path)], check=True)
    written, page = tmp_path / results.with_suffix(".md").name, results.with_suffix(".md")
    assert page.read_text() == written.read_text(), f"run {script} {results}"
    drawn = WORDS.findall(written.with_suffix(".svg").read_text())
    assert WORDS.findall(page.with_suffix(".svg").read_text()) == drawn
    assert "as published" in drawn
