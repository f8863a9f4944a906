"""The code in README.md and in the pages of docs/ runs, as it stands there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

import headrace
from headrace._pack.on_ray import OWN_CLUSTER
from headrace.demo import digits
from testing.servers import AistoreCluster, FakeGcsServer, MinioServer, minio
from tests.nursery import Nursery

pytestmark = pytest.mark.timeout(960)

ROOT = Path(__file__).resolve().parent.parent.parent
# What is shown but does not run, such as code of other packages, is ```py.
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DOCUMENTS = sorted(
    str(path.relative_to(ROOT))
    for path in [
        ROOT / "README.md",
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("docs/howto/*.md"),
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


class Run(Protocol):
    """Runs a program in an interpreter and a folder of its own, and returns what it printed.

    The interpreter has torch imported already, which takes longer than what is in the documents.
    """

    def __call__(self, source: str, **environment: str) -> str: ...


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery(warnings_are_errors=False) as nursery:
        yield nursery


@pytest.fixture
def run(nursery: Nursery, tmp_path: Path) -> Run:
    def run(source: str, **environment: str) -> str:
        return nursery.run(
            tmp_path, source, timeout_s=480, stderr=None, cwd=tmp_path, **environment
        )

    return run


@pytest.fixture(scope="module")
def gcs_environment() -> Iterator[dict[str, str]]:
    with FakeGcsServer() as server:
        for bucket in (*BUCKETS, "readme"):
            server.make_bucket(bucket)
        for bucket in BUCKETS:
            store = headrace.Store(f"gs://{bucket}", endpoint=server.url)
            list(digits.write(store, "", images()))
        yield {"STORAGE_EMULATOR_HOST": server.url}


@pytest.fixture(scope="module")
def s3_environment() -> Iterator[dict[str, str]]:
    with MinioServer(buckets=BUCKETS) as server:
        yield {
            "AWS_ENDPOINT_URL": server.url,
            "AWS_ACCESS_KEY_ID": minio.ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": minio.SECRET_KEY,
        }


@pytest.fixture(scope="module")
def ais_environment() -> Iterator[dict[str, str]]:
    with AistoreCluster() as cluster:
        for bucket in BUCKETS:
            cluster.make_bucket(bucket)
            store = headrace.Store(f"ais://{bucket}", endpoint=cluster.url)
            list(digits.write(store, "", images()))
        yield {"AIS_ENDPOINT": cluster.url}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("buckets")
    for bucket in BUCKETS:
        (root / bucket).mkdir()
        list(digits.write(headrace.Store(root / bucket), "", images()))
    return root


# Nothing can be joined on a disk, and no AIStore be asked there.
NOT_ON_A_FOLDER = {"small_objects.md", "ais.md", "aistore_plugin.md", "fsspec.md"}
# These run on servers each time; the others, which a folder serves as well, in `make soak`.
ON_SERVERS = NOT_ON_A_FOLDER | {"README.md", "s3.md", "checkpoints.md"}


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(name, marks=() if Path(name).name in ON_SERVERS else pytest.mark.soak)
        for name in DOCUMENTS
    ],
)
def test_the_code_runs_on_a_server(
    document: str,
    gcs_environment: dict[str, str],
    s3_environment: dict[str, str],
    ais_environment: dict[str, str],
    run: Run,
) -> None:
    source = program(document).replace(README_URL, '"gs://readme/any/folder"')
    run(source, **gcs_environment, **s3_environment, **ais_environment, **OWN_CLUSTER)


@pytest.mark.parametrize(
    "document",
    [
        # tests/ray calls what ray.md calls; a cluster of its own takes most of the time.
        pytest.param(name, marks=pytest.mark.soak if Path(name).name == "ray.md" else ())
        for name in DOCUMENTS
        if Path(name).name not in NOT_ON_A_FOLDER
    ],
)
def test_the_code_runs_on_a_folder(document: str, folders: Path, tmp_path: Path, run: Run) -> None:
    source = program(document).replace(README_URL, repr(str(tmp_path / "example")))
    for bucket in BUCKETS:
        for scheme in ("gs", "s3"):
            source = source.replace(f'"{scheme}://{bucket}', f'"{folders / bucket}')
    assert '"gs://' not in source
    assert '"s3://' not in source
    run(source, **OWN_CLUSTER)


def test_the_smallest_example_runs(run: Run) -> None:
    assert ", 0 objects wrong" in run((ROOT / "examples" / "list_and_read.py").read_text())


def test_the_first_code_of_the_readme_fits_into_fifteen_lines() -> None:
    block, *_ = BLOCK.findall((ROOT / "README.md").read_text())
    assert README_URL in block
    assert len([line for line in block.splitlines() if line.strip()]) <= 15


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_its_links_lead_somewhere(document: str) -> None:
    # those of docs/ are checked when the site is made
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", (ROOT / document).read_text())
    assert [link for link in links if ":" not in link and not (ROOT / link).exists()] == []
