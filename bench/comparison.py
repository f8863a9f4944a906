"""What others have published beside what is measured here: the table, and the picture of it.

A row compares three ways to do one thing: the baseline that somebody's publication names, what was
published, and headrace. The speed-up over the baseline is compared, not the times: those are of
other machines.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.table import shown_number

_HEADS: tuple[str, ...] = (
    "",
    "published: baseline, peer",
    "x",
    "here: baseline",
    "peer",
    "x",
    "headrace",
    "x",
)
_HEADS += ("target", "")
_NONE = "-"

# Of the picture.
_PUBLISHED, _THEIRS, _OURS = "tab:gray", "tab:orange", "tab:blue"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One row: `baseline`, `peer` and `ours` are what each repetition gave here, in `unit`."""

    table: str
    name: str
    unit: str
    # Seconds are better if there are fewer; rates are better if they are larger.
    less_is_better: bool
    # What was published of the baseline and of the peer, in whatever unit; None: nothing was.
    published: tuple[float, float] | None
    published_unit: str
    baseline: Sequence[float]
    peer: Sequence[float]
    ours: Sequence[float]
    # How many times the published speed-up, or else that of the peer here, ours is to be.
    factor: float

    def _times(self, values: Sequence[float]) -> list[float]:
        pairs = zip(self.baseline, values, strict=False)
        return [a / b if self.less_is_better else b / a for a, b in pairs]

    @property
    def published_times(self) -> float | None:
        """The published speed-up; times of the same work, or rates."""
        if self.published is None:
            return None
        baseline, peer = self.published
        is_time = self.published_unit in ("s", "ms", "min")
        return baseline / peer if is_time else peer / baseline

    @property
    def peer_times(self) -> list[float]:
        """The peer's speed-up here, of each repetition; none where there is no peer."""
        return self._times(self.peer)

    @property
    def our_times(self) -> list[float]:
        """Ours."""
        return self._times(self.ours)

    @property
    def target(self) -> float:
        """The least that our speed-up is to be."""
        published = self.published_times
        if published is None:
            published = statistics.median(self.peer_times) if self.peer else 1.0
        return self.factor * published

    @property
    def verdict(self) -> str:
        """PASS or MISS."""
        return "PASS" if statistics.median(self.our_times) >= self.target else "MISS"

    def to_json(self) -> dict[str, Any]:
        """Return all that `of` needs."""
        return dataclasses.asdict(self)

    @staticmethod
    def of(found: Mapping[str, Any]) -> Comparison:
        """Return the row of a result."""
        published = found["published"]
        return Comparison(**{**found, "published": tuple(published) if published else None})


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows that were published together."""

    title: str
    # What the columns are of, in the words of the page.
    baseline: str
    peer: str
    ours: str
    text: str


def write(tables: Sequence[Table], result: Mapping[str, Any], file: Path) -> None:
    """Write the page and the picture beside the `file` of the result."""
    file.with_suffix(".md").write_text("\n".join(page(tables, result, file.stem)) + "\n")
    if any(each["published"] for each in result["published"]):
        draw(tables, result, file.with_suffix(".svg"))


def page(tables: Sequence[Table], result: Mapping[str, Any], name: str) -> Iterator[str]:
    """Yield the lines of the page that shows the rows of a result."""
    machine = result["machine"]
    rows = [Comparison.of(each) for each in result["published"]]
    passed = sum(row.verdict == "PASS" for row in rows)
    yield "# What others have published, beside headrace"
    yield ""
    yield "**Question:** how many times as fast as the baseline of each publication is what was"
    yield "published, there and here, and headrace?"
    yield ""
    yield f'    make bench BENCH="{result["command"].removeprefix("bench/run.py ")}"'
    yield ""
    yield (
        f"Commit {result['commit'][:7]}, {result['date'][:10]}, {machine['cores']} cores of "
        f"{machine['processor']}, which clients and servers share; load "
        f"{machine['load_before'][0]:.1f} at the start; {result['took_s'] / 60:.0f} minutes."
    )
    yield f"Raw: [{name}.json]({name}.json). The run itself wrote this page and the picture."
    yield ""
    yield f"![Speed-ups: published, the same here, and headrace]({name}.svg)"
    yield ""
    yield (
        f"**Answer:** {passed} of {len(rows)} rows reach their target. Speed-ups (x) are over the "
        "baseline of the same column block; medians. Times and rates of the publications are of "
        "other machines, and stand here only for their ratio."
    )
    if "--quick" in result["command"]:
        yield ""
        yield "**A quick run, with less of everything: its numbers are not a measurement.**"
    for table in tables:
        members = [row for row in rows if row.table == table.title]
        if not members:
            continue
        yield ""
        yield f"## {table.title}"
        yield ""
        yield table.text
        yield ""
        yield "| " + " | ".join(_HEADS) + " |"
        yield "| --- " * len(_HEADS) + "|"
        for row in members:
            yield "| " + " | ".join(_cells(row)) + " |"
        yield ""
        yield f"Baseline: {table.baseline}. Peer: {table.peer}. headrace: {table.ours}."
    errors = [row for row in result["rows"] if row["error"]]
    if errors:
        yield ""
        yield "## Not measured"
        yield ""
        for row in errors:
            yield f"- {row['group']}, {row['name']}: `{row['error'].splitlines()[-1][:200]}`"


def _cells(row: Comparison) -> Iterator[str]:
    def shown(values: Sequence[float], unit: str = row.unit) -> str:
        return f"{shown_number(statistics.median(values))} {unit}" if values else _NONE

    def times(values: Sequence[float]) -> str:
        if not values:
            return _NONE
        middle = shown_number(statistics.median(values))
        if len(values) == 1:
            return middle
        return f"{middle} ({shown_number(min(values))} .. {shown_number(max(values))})"

    yield row.name
    if row.published is None:
        yield from (_NONE, _NONE)
    else:
        baseline, peer = map(shown_number, row.published)
        yield f"{baseline}, {peer} {row.published_unit}"
        yield shown_number(row.published_times or 0)
    yield shown(row.baseline)
    yield shown(row.peer)
    yield times(row.peer_times)
    yield shown(row.ours)
    yield times(row.our_times)
    yield f"≥ {shown_number(row.target)}"
    yield row.verdict


def draw(tables: Sequence[Table], result: Mapping[str, Any], file: Path) -> None:
    """Draw a panel for each table: the published speed-ups, and those here."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    # Where nothing was published, the page has the numbers.
    rows = [Comparison.of(each) for each in result["published"] if each["published"]]
    shown = [table for table in tables if any(row.table == table.title for row in rows)]
    heights = [1 + sum(row.table == table.title for row in rows) for table in shown]
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "headrace"}):
        figure, grid = pyplot.subplots(
            len(shown),
            1,
            figsize=(10, 0.42 * sum(heights) + 1.2),
            height_ratios=heights,
            layout="constrained",
            squeeze=False,
        )
        for axes, table in zip(grid.flat, shown, strict=True):
            _panel(axes, table, [row for row in rows if row.table == table.title])
        handles = [
            pyplot.Rectangle((0, 0), 1, 1, color=color) for color in (_PUBLISHED, _THEIRS, _OURS)
        ]
        figure.legend(
            handles,
            ["as published", "the same, here", "headrace, here"],
            loc="outside upper center",
            ncols=3,
            fontsize=9,
            frameon=False,
        )
        command = result["command"].removeprefix("bench/run.py ").partition(" --json")[0]
        day = result["date"][:10]
        figure.supxlabel(
            f'times as fast as the baseline (logarithmic); {day}: make bench BENCH="{command}"',
            fontsize=8,
        )
        figure.savefig(file, metadata={"Date": None, "Creator": None})
        pyplot.close(figure)


def _panel(axes: Any, table: Table, rows: Sequence[Comparison]) -> None:
    for position, row in enumerate(rows):
        values = [
            (row.published_times, _PUBLISHED),
            (statistics.median(row.peer_times) if row.peer else None, _THEIRS),
            (statistics.median(row.our_times), _OURS),
        ]
        for place, (value, color) in enumerate(values):
            if value is None:
                continue
            y = position + (place - 1) * 0.27
            axes.barh(y, value - 1, left=1, height=0.25, color=color)
            axes.text(max(value, 1) * 1.03, y, f"{value:.3g}", va="center", fontsize=7)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    axes.set_xlim(min(low, 0.8), high * 1.3)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("")
    axes.set_yticks(range(len(rows)), [row.name for row in rows], fontsize=8)
    axes.invert_yaxis()
    axes.set_title(f"{table.title}; the baseline: {table.baseline}", fontsize=9, loc="left")
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
