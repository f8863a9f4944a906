"""The page of `headrace bench --html`: one file, without scripts, that needs nothing else."""

from __future__ import annotations

import datetime
import html
import io
import os
import platform
import re
import shlex
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import headrace
from headrace import MiB
from headrace._cli.bench_reads import Reads, quantile
from headrace._cli.bench_series import Measurement, Settings
from headrace._cli.report import binary_size, counted, shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["write_page"]

_BLUE, _ORANGE, _GREEN, _GREY = "#2f6db5", "#d9822b", "#3a8f6b", "#8a94a3"
_QUANTILES = ((0.5, _BLUE, "p50"), (0.9, _GREEN, "p90"), (0.99, _ORANGE, "p99"))
_STYLE: dict[Any, Any] = {
    "axes.edgecolor": "#c3c9d2",
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.labelcolor": "#4a5362",
    "axes.labelsize": 9,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    "grid.color": "#e6e9ee",
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "lines.linewidth": 1.8,
    "svg.fonttype": "path",
    "xtick.color": "#4a5362",
    "ytick.color": "#4a5362",
}
_CSS = """
:root { color-scheme: light }
body { margin: 0; background: #f4f6f9; color: #1d2530;
  font: 15px/1.5 system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif }
main { max-width: 1120px; margin: 0 auto; padding: 32px 24px 48px }
h1 { font-size: 25px; margin: 0 0 2px; overflow-wrap: anywhere }
h2 { font-size: 16px; margin: 0 0 2px }
p { margin: 0 0 8px; color: #4a5362 }
.notice { background: #fff3dc; border: 1px solid #e9c98a; border-radius: 8px; padding: 8px 14px;
  color: #5e4310 }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(230px, 1fr)); gap: 12px;
  margin: 20px 0 }
.tile, figure, .card { background: #fff; border: 1px solid #e1e5eb; border-radius: 10px }
.tile { padding: 12px 16px }
.tile b { display: block; font-size: 22px; line-height: 1.25 }
.tile span { color: #4a5362; font-size: 13px }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(460px, 1fr)); gap: 16px }
figure { margin: 0; padding: 14px 18px }
figure svg { width: 100%; height: auto; display: block }
figcaption p { font-size: 13px }
.card { padding: 14px 18px; margin-top: 16px; overflow-x: auto }
table { border-collapse: collapse; font-size: 13.5px; width: 100% }
th, td { text-align: right; padding: 5px 12px; border-bottom: 1px solid #edf0f4;
  white-space: nowrap }
th:first-child, td:first-child { text-align: left; padding-left: 0 }
thead th { color: #4a5362; font-weight: 600 }
.facts td:last-child { text-align: left; white-space: normal; width: 100% }
code { font: 13px ui-monospace, "DejaVu Sans Mono", monospace; overflow-wrap: anywhere }
@media (max-width: 560px) { .plots { grid-template-columns: 1fr } }
"""

Draw = Callable[["Axes"], None]


def write_page(
    file: Path,
    found: Sequence[Measurement],
    *,
    url: str,
    sizes: Sequence[int],
    list_s: float,
    seconds: float,
    repeats: int,
    step_s: float,
    is_whole: bool,
) -> None:
    """Write a page about what was measured.

    Args:
        found: the first one is what the others are compared with; each has been measured once.
        sizes: of all objects that were listed.
        list_s: how long that took.
        seconds: how long each measurement was to take.
        repeats: how often each was to be made.
        step_s: how long a step of the trainer was to take.
        is_whole: whether all was measured; else the command was stopped before.

    Raises:
        OSError: the file cannot be written.
    """
    base = found[0]
    plots = [
        ("Throughput over time", *_over_time(base)),
        ("Waits for a batch", *_waits(base)),
        ("Batch size", *_by(found, "batch_size", lambda each: str(each.batch_size))),
        ("Read-ahead", *_by(found, "prefetch_bytes", _prefetch_text)),
        ("Processes", *_scaling(found)),
        ("Steps", *_steps(found)),
        ("Memory", *_memory(base)),
        ("Start-up", *_start_up(base, list_s)),
    ]
    figures = [_figure(title, note, draw) for title, note, draw in plots]
    rounds = f"{counted(repeats, 'round')} of {seconds:g} s for each way to read"
    step = f"; a step of the trainer takes {1000 * step_s:g} ms" if step_s > 0 else ""
    now = datetime.datetime.now(datetime.UTC)
    facts = [
        ("command", f"<code>{_escaped(_command())}</code>"),
        ("date", f"{now:%Y-%m-%d %H:%M:%S} UTC"),
        ("machine", _escaped(_machine())),
        (
            "versions",
            _escaped(f"headrace {headrace.__version__}, Python {platform.python_version()}"),
        ),
        ("measured", _escaped(rounds + step)),
    ]
    rows = "".join(f"<tr><td>{name}</td><td>{value}</td></tr>" for name, value in facts)
    notice = (
        ""
        if is_whole
        else '<p class="notice">The command was stopped before all was measured. This page shows '
        "what was measured until then.</p>"
    )
    text = f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>headrace bench {_escaped(url)}</title>
<style>{_CSS}</style>
</head>
<body>
<main>
<h1>{_escaped(url)}</h1>
<p>{_escaped(_about(sizes))} Each process reads shuffled batches and does nothing else with
them{_escaped(step and " for " + f"{1000 * step_s:g} ms")}.</p>
{notice}
<div class="tiles">{_tiles(base)}</div>
<div class="plots">
{"".join(figures)}
</div>
<div class="card"><h2>All measurements</h2>
<p>Throughput is the median of the runs, with the least and the most; the time until the first batch
comes is part of it. Waits are quantiles over the batches of all runs.</p>
{_table(found)}</div>
<div class="card"><h2>How this was measured</h2>
<table class="facts">{rows}</table></div>
</main>
</body>
</html>
"""
    partial = file.with_name(f".{file.name}.{os.getpid()}.part")
    try:
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, file)
    finally:
        partial.unlink(missing_ok=True)


# ---- text


def _escaped(text: str) -> str:
    return html.escape(shown(text))


def _command() -> str:
    return shlex.join(["headrace", *sys.argv[1:]])


def _machine() -> str:
    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            found = re.search(r"^model name\s*:\s*(.+)$", file.read(), re.MULTILINE)
            model = found[1] if found else model
    except OSError:
        pass
    cores = counted(len(os.sched_getaffinity(0)), "core")
    return f"{cores} of {model}, {platform.system()} {platform.release()}"


def _about(sizes: Sequence[int]) -> str:
    total, count = sum(sizes), len(sizes)
    text = f"{count:,} {'object' if count == 1 else 'objects'}, {binary_size(total)} in all"
    if count > 1:
        median = binary_size(statistics.median(sizes))
        text += f", median {median}, largest {binary_size(max(sizes))}"
    return text + "."


def _tiles(base: Measurement) -> str:
    reads = [each for run in base.runs for each in run]
    objects, size_bytes = sum(each.objects for each in reads), sum(each.bytes for each in reads)
    cpu_s, requests = sum(each.cpu_s for each in reads), sum(each.requests for each in reads)
    mean_ms = 1000 * sum(each.first_byte_s for each in reads) / requests if requests else 0.0
    tiles = [
        (f"{statistics.median(base.objects_per_s):,.0f} /s", "objects, median of the runs"),
        (f"{binary_size(statistics.median(base.bytes_per_s))}/s", "median of the runs"),
        (_ms(quantile(base.waits_s, 0.5)), "wait for a batch, median"),
        (_ms(quantile(base.waits_s, 0.99)), "wait for a batch, p99"),
        (f"{1e6 * cpu_s / objects:.1f} µs", "CPU time an object"),
    ]
    if mean_ms > 0:  # reads of files have no such time
        tiles.append((f"{mean_ms:.2f} ms", "to the first byte, mean"))
    if size_bytes:
        peak = max(each.peak_object_bytes for each in reads)
        tiles.append((binary_size(peak), "object bytes in memory, at most"))
    retries = sum(each.retries for each in reads)
    tiles.append((f"{retries:,} of {requests:,}", "requests were retries"))
    return "".join(
        f'<div class="tile"><b>{value}</b><span>{what}</span></div>' for value, what in tiles
    )


def _ms(duration_s: float) -> str:
    ms = 1000 * duration_s
    return f"{ms:.0f} ms" if ms >= 100 else f"{ms:.1f} ms" if ms >= 10 else f"{ms:.2f} ms"


def _table(found: Sequence[Measurement]) -> str:
    names = ["", "runs", "batches", "objects/s", "MiB/s", "wait p50", "p90", "p99", "CPU/object"]
    rows = []
    for each in found:
        reads = [one for run in each.runs for one in run]
        cpu_us = 1e6 * sum(one.cpu_s for one in reads) / max(1, sum(one.objects for one in reads))
        cells = [
            each.settings.text,
            str(len(each.runs)),
            f"{len(each.waits_s):,}",
            _spread(each.objects_per_s, 1.0, 0),
            _spread(each.bytes_per_s, 1 / MiB, 1),
            *(_ms(quantile(each.waits_s, fraction)) for fraction, _, _ in _QUANTILES),
            f"{cpu_us:.1f} µs",
        ]
        rows.append("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>")
    head = "".join(f"<th>{name}</th>" for name in names)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _spread(values: Sequence[float], scale: float, digits: int) -> str:
    texts = [f"{scale * each:,.{digits}f}" for each in (min(values), max(values))]
    middle = f"{scale * statistics.median(values):,.{digits}f}"
    return middle if len(values) == 1 else f"{middle} ({texts[0]} to {texts[1]})"


# ---- plots


def _figure(title: str, note: str, draw: Draw) -> str:
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    name = title.lower().replace(" ", "-")
    with mpl.rc_context({**_STYLE, "svg.hashsalt": name}):
        figure = Figure(figsize=(6.2, 3.1), layout="constrained")
        FigureCanvasSVG(figure)
        figure.patch.set_alpha(0)
        axes = figure.add_subplot()
        axes.patch.set_alpha(0)
        draw(axes)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]
    # Identifiers of one plot are not those of another in the same page.
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', svg)
    svg = re.sub(r'(href="#|url\(#)', rf"\g<1>{name}-", svg)
    svg = svg.replace("<svg ", f'<svg role="img" aria-label="{html.escape(title)}" ', 1)
    return (
        f'<figure id="{name}"><figcaption><h2>{html.escape(title)}</h2><p>{html.escape(note)}</p>'
        f"</figcaption>{svg}</figure>\n"
    )


def _nothing(axes: Axes) -> None:
    axes.set_axis_off()
    axes.text(0.5, 0.5, "not measured", ha="center", va="center", color=_GREY)


def _zero_based(axes: Axes) -> None:
    axes.set_ylim(bottom=0)


def _over_time(base: Measurement) -> tuple[str, Draw]:
    def draw(axes: Axes) -> None:
        for number, run in enumerate(base.runs):
            [reads] = run
            bins = max(1, min(25, len(reads.ends_s) // 4))
            width_s = reads.duration_s / bins
            sums = [0] * bins
            for end_s, size_bytes in zip(reads.ends_s, reads.batch_bytes, strict=True):
                sums[min(bins - 1, int(end_s / width_s))] += size_bytes
            axes.stairs(
                [size_bytes / MiB / width_s for size_bytes in sums],
                [at * width_s for at in range(bins + 1)],
                color=_BLUE,
                alpha=0.9 if number == 0 else 0.45,
                linewidth=1.8 if number == 0 else 1.2,
                label="first run" if number == 0 else "other runs" if number == 1 else None,
            )
        axes.set(xlabel="time (s)", ylabel="MiB/s")
        _zero_based(axes)
        if len(base.runs) > 1:
            axes.legend()

    n = counted(sum(len(each.ends_s) for run in base.runs for each in run), "batch", "batches")
    return f"{base.settings.text}; {counted(len(base.runs), 'run')}, {n}.", draw


def _waits(base: Measurement) -> tuple[str, Draw]:
    waits_ms = sorted(1000 * wait_s for wait_s in base.waits_s)

    def draw(axes: Axes) -> None:
        # All of a long tail, and no more points than a plot can show.
        step = max(1, len(waits_ms) // 500)
        at = sorted(
            {*range(0, len(waits_ms), step), *range(max(0, len(waits_ms) - 100), len(waits_ms))}
        )
        axes.plot(
            [max(waits_ms[i], 1e-3) for i in at],
            [100 * (i + 1) / len(waits_ms) for i in at],
            color=_BLUE,
            drawstyle="steps-post",
        )
        for fraction, color, name in _QUANTILES:
            value = max(1000 * quantile(base.waits_s, fraction), 1e-3)
            axes.axvline(
                value, color=color, linewidth=1, linestyle="--", label=f"{name} {value:.2f} ms"
            )
        axes.set(xscale="log", xlabel="wait (ms)", ylabel="batches (%)", ylim=(0, 102))
        axes.legend(ncols=3, loc="upper center", bbox_to_anchor=(0.5, 1.16))

    n = counted(len(waits_ms), "batch", "batches")
    return f"The share of batches that came within a time; {n}.", draw


def _chosen(found: Sequence[Measurement], field: str) -> list[Measurement]:
    """Return the measurements that differ from the first in nothing but this field."""
    base = vars(found[0].settings)
    same = [
        each
        for each in found
        if all(value == base[name] for name, value in vars(each.settings).items() if name != field)
    ]

    def key(each: Measurement) -> float:
        value = getattr(each.settings, field)
        return float("inf") if value is None else float(value)

    return sorted(same, key=key)


def _prefetch_text(settings: Settings) -> str:
    size_bytes = settings.prefetch_bytes
    if size_bytes is None:
        return "automatic"
    return f"{size_bytes // MiB} MiB" if size_bytes else "one batch"


def _by(
    found: Sequence[Measurement], field: str, name_of: Callable[[Settings], str]
) -> tuple[str, Draw]:
    chosen = _chosen(found, field)

    def draw(axes: Axes) -> None:
        places = list(range(len(chosen)))
        for at, (fraction, color, name) in enumerate(_QUANTILES):
            values = [max(1e-3, 1000 * quantile(each.waits_s, fraction)) for each in chosen]
            bars = axes.bar(
                [x + 0.26 * (at - 1) for x in places], values, 0.24, color=color, label=name
            )
            axes.bar_label(bars, [f"{value:.3g}" for value in values], fontsize=7, color="#4a5362")
        labels = [
            f"{name_of(each.settings)}\n{statistics.median(each.bytes_per_s) / MiB:,.0f} MiB/s"
            for each in chosen
        ]
        axes.set_xticks(places, labels)
        axes.grid(visible=False, axis="x")
        axes.set(yscale="log", ylabel="wait for a batch (ms)")
        axes.margins(y=0.15)
        axes.legend(ncols=3, loc="upper center", bbox_to_anchor=(0.5, 1.16))

    if field == "batch_size":
        note = "Objects a batch, and how long the consumer waited for one."
    else:
        note = "How much may be read ahead, and how long the consumer waited for a batch."
    return f"{note} {_counts(chosen)}", draw


def _counts(chosen: Sequence[Measurement]) -> str:
    least = min(len(each.waits_s) for each in chosen)
    return f"At least {counted(least, 'batch', 'batches')} each."


def _scaling(found: Sequence[Measurement]) -> tuple[str, Draw]:
    chosen = _chosen(found, "processes")

    def draw(axes: Axes) -> None:
        counts = [each.settings.processes for each in chosen]
        rates = [[rate / MiB for rate in each.bytes_per_s] for each in chosen]
        middles = [statistics.median(each) for each in rates]
        errors = [
            [middle - min(each) for middle, each in zip(middles, rates, strict=True)],
            [max(each) - middle for middle, each in zip(middles, rates, strict=True)],
        ]
        axes.plot(
            counts,
            [middles[0] / counts[0] * count for count in counts],
            color=_GREY,
            linestyle=":",
            label="if each were as fast as one alone",
        )
        axes.errorbar(
            counts,
            middles,
            errors,
            color=_BLUE,
            marker="o",
            capsize=4,
            label="measured, all together",
        )
        axes.set_xticks(counts, [str(count) for count in counts])
        axes.set(xlabel="processes", ylabel="MiB/s")
        _zero_based(axes)
        axes.legend(loc="upper left")

    runs = counted(min(len(each.runs) for each in chosen), "run")
    return f"Median of the runs, with the least and the most; at least {runs} each.", draw


def _steps(found: Sequence[Measurement]) -> tuple[str, Draw]:
    chosen = _chosen(found, "batch_size")

    def draw(axes: Axes) -> None:
        for each, color in zip(chosen, (_BLUE, _GREEN, _ORANGE), strict=False):
            steps_ms = sorted(1000 * step_s for step_s in each.steps_s)
            last = len(steps_ms) - 1
            fractions = [at / 200 for at in range(200)] + [0.995, 0.999, 1.0]
            axes.plot(
                [100 * fraction for fraction in fractions],
                [max(1e-3, steps_ms[min(last, int(fraction * last))]) for fraction in fractions],
                color=color,
                label=f"batches of {each.settings.batch_size}",
            )
        axes.set(yscale="log", xlabel="quantile (%)", ylabel="step (ms)", xlim=(0, 100))
        axes.legend()

    note = "From one batch to the next: the wait, and the trainer's work if --step-ms is given."
    return f"{note} {_counts(chosen)}", draw


def _memory(base: Measurement) -> tuple[str, Draw]:
    [reads] = base.runs[0]

    def draw(axes: Axes) -> None:
        if not reads.memory:
            return _nothing(axes)
        times_s = [at_s for at_s, _, _ in reads.memory]
        axes.plot(
            times_s, [rss / MiB for _, rss, _ in reads.memory], color=_GREY, label="process (RSS)"
        )
        axes.fill_between(
            times_s,
            [live / MiB for _, _, live in reads.memory],
            color=_BLUE,
            alpha=0.55,
            linewidth=0,
            label="object bytes",
        )
        axes.set(xlabel="time (s)", ylabel="MiB")
        _zero_based(axes)
        axes.legend()
        return None

    peak = binary_size(reads.peak_rss_bytes)
    return f"The first run; the process had {peak} at most. {len(reads.memory)} looks.", draw


def _start_up(base: Measurement, list_s: float) -> tuple[str, Draw]:
    firsts: list[Reads] = [each for run in base.runs for each in run if each.waits_s]
    parts: list[tuple[str, float, Any]] = [
        ("start Python, import headrace", statistics.median(base.starts_s), _GREY),
        ("list", list_s, _GREEN),
    ]
    if firsts:
        parts.append(("first batch", statistics.median(each.waits_s[0] for each in firsts), _BLUE))

    def draw(axes: Axes) -> None:
        begin = 0.0
        for at, (_, duration_s, color) in enumerate(parts):
            axes.barh(len(parts) - at, 1000 * duration_s, left=begin, color=color, height=0.55)
            axes.text(
                begin + 1000 * duration_s, len(parts) - at, f"  {1000 * duration_s:,.1f} ms",
                va="center", fontsize=8.5, color="#4a5362",
            )  # fmt: skip
            begin += 1000 * duration_s
        axes.set_yticks(
            [len(parts) - at for at in range(len(parts))], [name for name, _, _ in parts]
        )
        axes.grid(visible=False, axis="y")
        axes.set(xlabel="ms", xlim=(0, 1.25 * begin))

    n = counted(len(base.runs), "run")
    return (
        f"Median of {n}; listed once. A new process opens its connections with the first batch.",
        draw,
    )
