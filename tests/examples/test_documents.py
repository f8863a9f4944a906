"""The code in README.md, docs/guide/ and docs/reference/ runs, as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import headrace
from headrace.demo import digits
from testing.servers import FakeGcsServer

# Some seconds on two cores, most of it the import of torch.
pytestmark = pytest.mark.timeout(240)

ROOT = Path(__file__).resolve().parent.parent.parent
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DOCUMENTS = sorted(
    str(path.relative_to(ROOT))
    for path in [
        ROOT / "README.md",
        *ROOT.glob("docs/guide/*.md"),
        *ROOT.glob("docs/reference/*.md"),
    ]
    if BLOCK.search(path.read_text())
)
BUCKETS = ("bucket", "my-bucket")  # the names in the documents
README_URL = '"/tmp/headrace-example"'


def program(document: str) -> str:
    """All Python of a document, each line at its number there, so that a traceback names it."""
    text = (ROOT / document).read_text()
    lines = [""] * (text.count("\n") + 1)
    for block in BLOCK.finditer(text):
        first = text.count("\n", 0, block.start(1))
        for i, line in enumerate(block[1].splitlines()):
            lines[first + i] = line
    return "\n".join(lines)


def images() -> list[tuple[str, bytes]]:
    """Some 200 PNG images, all below ``train/``."""
    return [item for item in digits.png_objects() if item[0].startswith("train/")][:200]


def run(source: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    script = folder / "document.py"
    script.write_text(source)
    return subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, **environment},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def server() -> Iterator[FakeGcsServer]:
    with FakeGcsServer() as server:
        for bucket in (*BUCKETS, "readme"):
            server.make_bucket(bucket)
        for bucket in BUCKETS:
            store = headrace.Store(f"gs://{bucket}", endpoint=server.url)
            list(digits.write(store, "", images()))
        yield server


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("buckets")
    for bucket in BUCKETS:
        (root / bucket).mkdir()
        list(digits.write(headrace.Store(root / bucket), "", images()))
    return root


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_code_runs_on_a_server(document: str, server: FakeGcsServer, tmp_path: Path) -> None:
    source = program(document).replace(README_URL, '"gs://readme/any/folder"')
    done = run(source, tmp_path, STORAGE_EMULATOR_HOST=server.url)
    assert done.returncode == 0, done.stderr


# Nothing can be joined on a disk.
@pytest.mark.parametrize("document", [name for name in DOCUMENTS if "small_objects" not in name])
def test_the_code_runs_on_a_folder(document: str, folders: Path, tmp_path: Path) -> None:
    source = program(document).replace(README_URL, repr(str(tmp_path / "example")))
    for bucket in BUCKETS:
        source = source.replace(f'"gs://{bucket}', f'"{folders / bucket}')
    assert '"gs://' not in source
    done = run(source, tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_smallest_example_runs(tmp_path: Path) -> None:
    done = run((ROOT / "examples" / "list_and_read.py").read_text(), tmp_path)
    assert done.returncode == 0, done.stderr
    assert ", 0 objects wrong" in done.stdout


def test_the_first_code_of_the_readme_fits_into_fifteen_lines() -> None:
    block, *_ = BLOCK.findall((ROOT / "README.md").read_text())
    assert README_URL in block
    assert len([line for line in block.splitlines() if line.strip()]) <= 15


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_its_links_lead_somewhere(document: str) -> None:
    # those of docs/ are checked when the site is made
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", (ROOT / document).read_text())
    assert [link for link in links if ":" not in link and not (ROOT / link).exists()] == []
