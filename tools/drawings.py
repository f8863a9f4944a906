"""Draws the pictures of docs/drawings. usage: tools/drawings.py [FOLDER] [--png]

The text of an SVG stays text, so that it can be searched. `--png` shows what a change looks like.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "drawings"

PLAIN, STORE, ENGINE, PYTHON, TORCH = "#f4f4f5", "#dbeafe", "#ffedd5", "#dcfce7", "#fae8ff"
INK, FAINT = "#1f2937", "#6b7280"


class Canvas:
    """A sheet of so many units, 100 of them to the inch; y grows downwards."""

    def __init__(self, width: float, height: float) -> None:
        self.figure = pyplot.figure(figsize=(width / 100, height / 100), facecolor="white")
        self.axes: Axes = self.figure.add_axes((0, 0, 1, 1))
        self.axes.set(xlim=(0, width), ylim=(height, 0))
        self.axes.set_axis_off()

    def box(
        self, x: float, y: float, width: float, height: float, text: str, color: str = PLAIN,
        *, size: float = 9.5, align: str = "center",
    ) -> None:  # fmt: skip
        """Draw a box; the first line of its text is its name."""
        self.axes.add_patch(
            FancyBboxPatch(
                (x + 4, y + 4), width - 8, height - 8, boxstyle="round,pad=4,rounding_size=6",
                facecolor=color, edgecolor=INK, linewidth=0.9,
            )
        )  # fmt: skip
        name, _, rest = text.partition("\n")
        lines = rest.split("\n") if rest else []
        line = size * 1.75
        top = y + height / 2 - line * len(lines) / 2 if align == "center" else y + 16
        place = x + width / 2
        self.axes.text(
            place, top, name, size=size, weight="bold", color=INK, ha="center", va="center"
        )
        for i, each in enumerate(lines, 1):
            self.axes.text(
                place, top + i * line, each, size=size - 1, color=INK, ha="center", va="center"
            )

    def arrow(
        self, begin: tuple[float, float], end: tuple[float, float], text: str = "",
        *, above: bool = True, both: bool = False,
    ) -> None:  # fmt: skip
        """Draw an arrow, and a word beside its middle."""
        self.axes.add_patch(
            FancyArrowPatch(
                begin, end, arrowstyle="<|-|>" if both else "-|>", mutation_scale=11,
                color=INK, linewidth=1.1, shrinkA=0, shrinkB=0,
            )
        )  # fmt: skip
        if text:
            middle_x, middle_y = (begin[0] + end[0]) / 2, (begin[1] + end[1]) / 2
            if begin[1] == end[1]:
                self.note(middle_x, middle_y + (-10 if above else 12), text)
            else:
                self.note(middle_x + 6, middle_y, text, left=True)

    def note(self, x: float, y: float, text: str, *, left: bool = False, size: float = 8.5) -> None:
        """Write beside what is drawn."""
        self.axes.text(
            x, y, text, size=size, color=FAINT, ha="left" if left else "center", va="center"
        )


def data_path() -> Canvas:
    """From object storage to the training step, and back."""
    c = Canvas(900, 250)
    c.box(
        10,
        45,
        170,
        160,
        "Object storage\ngs://  Google Cloud\ns3://  AWS, MinIO, ...\nais://  AIStore\na folder",
        STORE,
    )
    c.box(300, 20, 270, 210, "headrace: one C++ engine", ENGINE, align="top")
    c.box(
        315, 55, 240, 48, "hundreds of requests in flight\npaced, retried, resumed", "white", size=9
    )
    c.box(315, 110, 240, 48, "objects checked: CRC-32C\nas the bytes come in", "white", size=9)
    c.box(315, 165, 240, 48, "straight into tensors\nwithin one memory budget", "white", size=9)
    c.box(
        690,
        20,
        200,
        95,
        "Training\nfor images, labels in loader:\n    train(images, labels)",
        TORCH,
    )
    c.box(690, 135, 200, 95, "State\nmodel, optimizer,\nplace in the data", TORCH)
    c.arrow((180, 90), (300, 90), "ranges, whole")
    c.note(240, 102, "objects, listings")
    c.arrow((570, 67), (690, 67), "batches, in an")
    c.note(630, 79, "exact order")
    c.arrow((690, 182), (570, 182), "checkpoints")
    c.arrow((300, 182), (180, 182), "parallel parts,")
    c.note(240, 194, "visible in one step")
    return c


def layers() -> Canvas:
    """Who uses whom; nothing points up."""
    c = Canvas(760, 400)
    rows = [
        (
            "headrace.torch, headrace.lightning, headrace.ray, ...\n"
            "datasets, Loader, samplers: what needs torch or another library",
            PYTHON,
        ),
        ("headrace\nstores, indexes, options, errors, the command line", PYTHON),
        (
            "headrace._engine (nanobind)\n"
            "converts and decides nothing; releases the GIL while it waits",
            PLAIN,
        ),
    ]
    for i, (text, color) in enumerate(rows):
        c.box(20, 10 + i * 60, 720, 46, text, color)
        for x in (195, 565):
            c.arrow((x, 56 + i * 60), (x, 70 + i * 60))
    c.box(20, 190, 350, 46, "dataset/, shards/\norder, index, tars", ENGINE)
    c.box(390, 190, 350, 46, "checkpoint/\nlayout of files, directory, sums", ENGINE)
    c.arrow((195, 236), (195, 250))
    c.arrow((565, 236), (565, 250))
    c.box(
        20,
        250,
        720,
        46,
        "store/\nread, write, list; retry, pace, checksums     gcs/  s3/  ais/  file/",
        ENGINE,
    )
    c.arrow((195, 296), (195, 310))
    c.arrow((565, 296), (565, 310))
    c.arrow((195, 346), (195, 356))
    c.arrow((565, 346), (565, 356))
    c.box(20, 310, 350, 36, "http/  connections, TLS", ENGINE)
    c.box(390, 310, 350, 36, "format/  bytes and values, no I/O", ENGINE)
    c.box(20, 356, 720, 36, "base/  memory budget, threads, clock, errors", ENGINE)
    return c


def batch() -> Canvas:
    """How a batch is read."""
    c = Canvas(900, 300)
    c.box(10, 20, 150, 80, "Order\n(seed, epoch, position)\na pure function", PYTHON)
    c.box(200, 20, 150, 80, "Index\nname, size, version\nabout 25 bytes each", PYTHON)
    c.box(390, 20, 150, 80, "Memory\nfrom the budget,\nbefore the request", ENGINE)
    c.box(580, 20, 150, 80, "I/O threads\none post for each,\nnot for each object", ENGINE)
    c.box(760, 20, 130, 80, "Admission\nhow many requests\nat once", ENGINE)
    for x in (160, 350, 540):
        c.arrow((x, 60), (x + 40, 60))
    c.arrow((730, 60), (760, 60))
    c.box(740, 190, 150, 80, "Object storage\nanswers, often late,\nin any order", STORE)
    c.arrow((835, 100), (835, 190), "GET")
    c.box(550, 190, 150, 80, "Into place\nsocket to tensor;\nCRC-32C on the way", ENGINE)
    c.box(370, 190, 150, 80, "Transform\nin threads, with the\nsample's own seed", PYTHON)
    c.box(190, 190, 150, 80, "Collate, copy\nto a GPU, two\nbatches ahead", PYTHON)
    c.box(10, 190, 150, 80, "Training step\ntakes batch n while\nn + 1 is made", TORCH)
    c.arrow((740, 230), (700, 230))
    c.arrow((550, 230), (520, 230))
    c.arrow((370, 230), (340, 230))
    c.arrow((190, 230), (160, 230))
    c.note(620, 145, "a body that breaks off continues where it stopped, in the same version")
    return c


def ranks() -> Canvas:
    """How ranks share a step, and how another number of them goes on."""
    c = Canvas(820, 300)
    colors = {0: STORE, 1: ENGINE, 2: TORCH}
    c.note(
        20, 22, "the order of epoch 0: the same row of samples on every rank", left=True, size=9.5
    )
    side, left = 32, 20
    for i in range(24):
        rank = (i % 6) // 2 if i < 12 else (i % 6) // 3
        c.box(left + i * side, 40, side, side, "", colors[rank])
        c.axes.text(
            left + i * side + side / 2, 57, str(i), size=8, color=INK, ha="center", va="center"
        )
    for step, x in enumerate((0, 6, 12, 18)):
        c.note(left + (x + 3) * side, 88, f"step {step}", size=9)
    c.axes.plot([left + 12 * side] * 2, [30, 118], color="#dc2626", linewidth=1.6)
    c.axes.text(
        left + 12 * side,
        128,
        "state_dict(): epoch 0, 12 samples",
        size=9,
        color="#dc2626",
        ha="center",
        va="center",
    )
    c.box(70, 160, 100, 50, "rank 0\n2 a step", STORE)
    c.box(180, 160, 100, 50, "rank 1\n2 a step", ENGINE)
    c.box(290, 160, 100, 50, "rank 2\n2 a step", TORCH)
    c.box(500, 160, 120, 50, "rank 0\n3 a step", STORE)
    c.box(640, 160, 120, 50, "rank 1\n3 a step", ENGINE)
    c.arrow((400, 185), (490, 185), "restart")
    c.note(
        410,
        245,
        "Three ranks stop, two go on at sample 12. Nothing is repeated, nothing is lost, and",
    )
    c.note(
        410,
        262,
        "with the same global batch every step is the one that three ranks would have taken.",
    )
    return c


def checkpoint() -> Canvas:
    """How a checkpoint becomes visible."""
    c = Canvas(860, 190)
    c.box(
        10,
        40,
        150,
        100,
        "Tensors\nin host memory, or on\na GPU: copied in\npieces of 16 MiB",
        TORCH,
    )
    c.box(200, 40, 150, 100, "Layout\nas torch.save,\na CRC-32C for\neach record", ENGINE)
    c.box(390, 40, 150, 100, "Parts\n16 MiB each,\nmany in flight,\ntemporary names", ENGINE)
    c.box(580, 40, 130, 100, "Compare\nsize and checksum\nof what the store\nhas", ENGINE)
    c.box(750, 40, 100, 100, "Publish\nin one step,\non condition", STORE)
    for x in (160, 350, 540):
        c.arrow((x, 90), (x + 40, 90))
    c.arrow((710, 90), (750, 90))
    c.note(
        430,
        165,
        "killed anywhere before the last step: the previous checkpoint stays; "
        "`headrace clean` removes the parts",
    )
    return c


def choosing() -> Canvas:
    """Which class when."""
    c = Canvas(780, 560)
    questions = [
        ("Text for a language model?", "TokenDataset\nwindows of files of token ids"),
        ("A table of rows and columns?", "ParquetDataset\nreads the columns that you name"),
        ("A list of URLs and labels?", "MapDataset.from_table\nlists nothing"),
        ("Objects of 50 KiB or more?", "MapDataset\none object is one sample"),
        (
            "Smaller objects?",
            "headrace pack, then ShardDataset\nfewer objects to list and to store",
        ),
        ("Tars, neither compressed nor tiny?", "ShardDataset\nany sample by one request"),
    ]
    for i, (question, answer) in enumerate(questions):
        y = 10 + i * 72
        c.box(20, y, 270, 50, question)
        c.arrow((290, y + 25), (420, y + 25), "yes")
        c.box(420, y, 340, 50, answer, PYTHON)
        c.arrow((155, y + 50), (155, y + 72), "no")
    c.box(20, 442, 270, 66, "ShardStream\nwhole shards, shuffled\nwithin a window", PYTHON)
    c.box(
        420,
        442,
        340,
        100,
        "Loader feeds the training\nfrom this process, and resumes after any batch.\n"
        "A stream (ShardStream, ParquetDataset), or a\n"
        "transform in pure Python: torch's DataLoader",
        TORCH,
    )
    c.arrow((590, 420), (590, 442))
    c.arrow((290, 475), (420, 475))
    return c


DRAWINGS: dict[str, Callable[[], Canvas]] = {
    each.__name__: each for each in (data_path, layers, batch, ranks, checkpoint, choosing)
}


def draw(folder: Path, kind: str = "svg") -> None:
    """Write every drawing below a folder, each the same on every machine."""
    settings = {"svg.fonttype": "none", "svg.hashsalt": "headrace", "font.family": "DejaVu Sans"}
    metadata = {"Date": None, "Creator": None} if kind == "svg" else {}
    with matplotlib.rc_context(settings):
        for name, drawing in DRAWINGS.items():
            canvas = drawing()
            canvas.figure.savefig(folder / f"{name}.{kind}", dpi=100, metadata=metadata)
            pyplot.close(canvas.figure)


if __name__ == "__main__":
    folders = [Path(each) for each in sys.argv[1:] if each != "--png"]
    draw(folders[0] if folders else FOLDER, "png" if "--png" in sys.argv else "svg")
