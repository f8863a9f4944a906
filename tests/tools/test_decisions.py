"""docs/decisions/README.md lists the pages as they are."""

from __future__ import annotations

import re
from pathlib import Path

DECISIONS = Path(__file__).parents[2] / "docs" / "decisions"
LINE = re.compile(r"^- \[(?P<title>.+)\]\((?P<page>[^)]+\.md)\): (?P<status>.+)$", re.MULTILINE)


def title(page: Path) -> str:
    return page.read_text().partition("\n")[0].removeprefix("# ")


def test_each_page_has_one_line_with_its_title() -> None:
    listed = [
        (line["page"], line["title"])
        for line in LINE.finditer((DECISIONS / "README.md").read_text())
    ]
    pages = [(page.name, title(page)) for page in DECISIONS.glob("2*.md")]
    assert sorted(listed) == sorted(pages)


def test_each_status_is_in_force_or_names_what_replaced_it_and_so_does_the_page() -> None:
    for line in LINE.finditer((DECISIONS / "README.md").read_text()):
        status = line["status"]
        assert re.match(r"in force($|; )|replaced by \[", status), line[0]
        for successor in re.findall(r"\(([^)]+\.md)\)", status):
            assert (DECISIONS / successor).exists(), line[0]
            top = "\n".join((DECISIONS / line["page"]).read_text().splitlines()[:6])
            assert successor in top, f"{line['page']} does not name {successor} on top"
