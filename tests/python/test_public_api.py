"""The public list, and its types as a user's checker sees them."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from types import ModuleType

import pytest

import headrace

GOOD = """
    import headrace
    import torch

    store = headrace.Store("gs://bucket", retry=headrace.RetryOptions(max_attempts=3))
    sample: headrace.Sample = store.read("a", into=bytearray(5))
    tensor: torch.Tensor = sample.tensor()
    data: bytes = sample.bytes()
    view = memoryview(sample)
    names: list[str] = [info.name for info in store.list("a/", delimiter="/")]
    samples: list[headrace.Sample] = store.read_many(names)
    either: list[headrace.Sample | headrace.HeadraceError] = store.read_many(names, errors="return")
    for batch in store.read_batches([names], prefetch_bytes=8 * headrace.MiB):
        first: headrace.Sample = batch[0]
    size: int = store.stat("a").size_bytes
    maybe: headrace.ObjectInfo | None = store.stat("a", missing_ok=True)
    page: headrace.ListPage = store.list_page()
    index: headrace.ObjectIndex = store.index("a/").filter(suffix=(".jpg", ".png"))[1:]
    last: headrace.ObjectInfo = index[-1]
    again: headrace.ObjectIndex = headrace.ObjectIndex.load("a", endpoint="http://localhost:1")
    picked: headrace.ObjectIndex = again.select(range(5))
    read: list[headrace.Sample] = store.read_many(picked)
    store.write("a", b"hello", if_generation="absent")
    count: int = headrace.metrics().requests_total
"""

# One error a line.
BAD = """
    import headrace

    headrace.Store()
    headrace.Store("gs://b", on_change="ignore")
    headrace.RetryOptions(3)
    headrace.Store("gs://b").read(b"name")
    headrace.Store("gs://b").write("a", "text")
    headrace.Store("gs://b").stat("a", missing_ok=True).size_bytes
    headrace.Store("gs://b").read_many(["a"], errors="ignore")
    headrace.Store("gs://b").read("a").size_bytes = 3
    headrace.Store("gs://b").index().select(["a"])
    headrace.Store("gs://b").index()[0] = 5
    headrace.ObjectIndex.from_objects(["a"])
"""


def check(snippet: str, folder: Path) -> list[str]:
    file = folder / "snippet.py"
    # torch's and numpy's own types take a minute to read, and are not what is tested.
    config = folder / "mypy.ini"
    config.write_text("[mypy]\n[mypy-torch.*,numpy.*]\nfollow_imports = skip\n")
    file.write_text(textwrap.dedent(snippet))
    package = Path(headrace.__file__).resolve().parent.parent
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--no-error-summary",
            "--hide-error-context",
            "--config-file",
            str(config),
            "--cache-dir",
            str(folder / "cache"),
            str(file),
        ],
        env={"MYPYPATH": str(package), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr
    return [line for line in done.stdout.splitlines() if "snippet.py" in line and "error" in line]


def test_the_list_is_sorted_and_complete() -> None:
    assert headrace.__all__ == sorted(headrace.__all__)
    exported = {
        name
        for name, thing in vars(headrace).items()
        if not name.startswith("_") and name != "annotations" and not isinstance(thing, ModuleType)
    }
    assert exported == set(headrace.__all__)


@pytest.mark.parametrize("name", headrace.__all__)
def test_what_is_public_says_so(name: str) -> None:
    thing = getattr(headrace, name)
    if not isinstance(thing, int):
        assert thing.__module__ == "headrace"
        assert thing.__doc__


def test_a_good_snippet_has_the_types_it_expects(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    assert check(GOOD, tmp_path) == []


def test_a_bad_snippet_is_refused_in_every_line(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    lines = {int(line.split(":")[1]) for line in check(BAD, tmp_path)}
    assert lines == set(range(4, len(textwrap.dedent(BAD).splitlines()) + 1))
