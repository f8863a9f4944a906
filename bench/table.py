"""Rows of a result and how they are shown."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.table import Table
from rich.text import Text

_STYLES = {"PASS": "green", "MISS": "bold red", "ERROR": "bold red"}


@dataclass(kw_only=True)
class Row:
    """One number: what it is, what it should be, and what each repetition gave."""

    group: str
    name: str
    unit: str
    values: Sequence[float] = field(default_factory=list)
    # At most one of the two; neither: the row informs.
    at_most: float | None = None
    at_least: float | None = None
    # Instead of values, when the measurement failed.
    error: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def target(self) -> str:
        if self.at_most is not None:
            return f"<= {shown_number(self.at_most)} {self.unit}".strip()
        if self.at_least is not None:
            return f">= {shown_number(self.at_least)} {self.unit}".strip()
        return ""

    @property
    def verdict(self) -> str:
        if self.error:
            return "ERROR"
        if self.at_most is not None:
            return "PASS" if self.median <= self.at_most else "MISS"
        if self.at_least is not None:
            return "PASS" if self.median >= self.at_least else "MISS"
        return ""

    def to_json(self) -> dict[str, Any]:
        known = not self.error
        return {
            "group": self.group,
            "name": self.name,
            "unit": self.unit,
            "target": self.target,
            "median": self.median if known else None,
            "min": min(self.values) if known else None,
            "max": max(self.values) if known else None,
            "repetitions": len(self.values),
            "verdict": self.verdict,
            "error": self.error,
        }


def shown_number(value: float) -> str:
    """Three digits, or all before the point."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _cells(row: Row) -> Iterator[str | Text]:
    yield row.name
    yield row.target
    if row.error:
        yield from ("", "", "")
    else:
        yield f"{shown_number(row.median)} {row.unit}".strip()
        yield f"{shown_number(min(row.values))} .. {shown_number(max(row.values))}"
        yield str(len(row.values))
    yield Text(row.verdict, style=_STYLES.get(row.verdict, ""))


def tables(rows: Sequence[Row]) -> Iterator[Table]:
    """One table a group, in the order of the rows; failures stand below theirs."""
    for group in dict.fromkeys(row.group for row in rows):
        members = [row for row in rows if row.group == group]
        table = Table(title=group, title_justify="left", title_style="bold", min_width=100)
        table.add_column("row", ratio=1)
        for head in ("target", "median", "min .. max", "n"):
            table.add_column(head, justify="right", no_wrap=True)
        table.add_column("", no_wrap=True)
        for row in members:
            table.add_row(*_cells(row))
        # The last line says what it was; the JSON has all of it.
        errors = [f"{row.name}: {row.error.splitlines()[-1]}" for row in members if row.error]
        if errors:
            table.caption = Text("\n".join(errors))
            table.caption_justify = "left"
        yield table
