"""Shards: samples, keys, rows; compressed, broken and large ones."""

from __future__ import annotations

import gzip
import io
import subprocess
import sys
import tarfile
import textwrap
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aistore.pytorch.shard_reader import AISShardReader as Original
from aistore.sdk import Bucket
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

import headrace
from headrace.compat.aistore.pytorch import AISMultiShardStream, AISShardReader, DataShard
from testing.faultserver.client import FaultServer
from tests.compat_aistore.conftest import ForeignSource

URL = "gs://bucket"
Count = Callable[[str], int]
Members = list[tuple[str, bytes]]

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


def tar(members: Members, **options: Any) -> bytes:
    """An archive of files; a name with a slash at its end is a folder."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", **options) as archive:
        for name, content in members:
            entry = tarfile.TarInfo(name.rstrip("/"))
            if name.endswith("/"):
                entry.type, content = tarfile.DIRTYPE, b""
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def samples(first: int, last: int) -> Members:
    return [
        (f"sample_{i}.{extension}", f"{extension} of {i}".encode())
        for i in range(first, last)
        for extension in ("cls", "jpg")
    ]


def by_original(*shards: bytes) -> list[Any]:
    """What the SDK's reader yields for these shards."""
    reader = Original(Bucket("bucket", None))  # type: ignore[arg-type]
    objects = [
        SimpleNamespace(
            name=f"{i}.tar",
            get_reader=lambda etl, content=content: SimpleNamespace(read_all=lambda: content),
        )
        for i, content in enumerate(shards)
    ]
    reader._create_objects_iter = lambda sources=None: iter(objects)
    return [(key, dict(fields)) for key, fields in iter(reader)]


def by_ours(*shards: bytes) -> list[Any]:
    source = ForeignSource({f"{i}.tar": content for i, content in enumerate(shards)})
    return [(key, dict(fields)) for key, fields in iter(AISShardReader(source))]


ODD = [
    ("a.jpg", b"1"), ("README", b"no dot"), ("d/", b""), ("d1/y.png", b"first"),
    ("d2/y.png", b"last"), ("z.png", b"z"), ("z.seg.png", b"seg"), (".hidden", b"h"),
    ("a.cls", b"2"), ("./b.x", b"3"), ("folder.ext/", b""), ("folder.ext/c.txt", b"4"),
    ("é ü.jpg", b"5"), ("long/" + "n" * 200 + ".jpg", b"6"), ("empty.txt", b""), ("end.", b"7"),
]  # fmt: skip


@pytest.mark.parametrize("format", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_odd_names_give_the_originals_samples(format: int) -> None:
    shard = tar(ODD, format=format)
    assert by_ours(shard) == by_original(shard)
    assert by_ours(shard, tar(samples(0, 2))) == by_original(shard, tar(samples(0, 2)))


NAMES = st.lists(st.text("ab./", min_size=1, max_size=7), max_size=12)


@given(st.lists(NAMES, min_size=1, max_size=3))
def test_any_names_give_the_originals_samples(shards: list[list[str]]) -> None:
    contents = [
        tar([(name, f"{i}".encode()) for i, name in enumerate(names) if name.strip("/")])
        for names in shards
    ]
    assert by_ours(*contents) == by_original(*contents)


def test_a_file_whose_name_is_a_folders_is_no_field() -> None:
    odd = tarfile.TarInfo("dir.e/")
    odd.type = tarfile.REGTYPE
    shard = tar_of_entries(odd, ("dir.e/a.jpg", b"1"))
    assert by_ours(shard) == by_original(shard) == [("a", {"jpg": b"1"})]


def test_a_batch_has_every_field_of_its_samples(server: FaultServer) -> None:
    server.put("bucket", "0.tar", tar([("a.jpg", b"1"), ("b.jpg", b"2")]))
    server.put("bucket", "1.tar", tar([("c.jpg", b"3"), ("c.cls", b"4")]))
    ((keys, fields),) = DataLoader(AISShardReader(URL), batch_size=3)
    assert keys == ["a", "b", "c"] or keys == ("a", "b", "c")
    assert fields == {"jpg": [b"1", b"2", b"3"], "cls": [b"", b"", b"4"]}


def _zip(members: Members) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in members:
            archive.writestr(name, content)
    return out.getvalue()


def test_compressed_shards_are_read() -> None:
    plain = tar(samples(0, 5))
    assert by_ours(gzip.compress(plain)) == by_original(plain)
    with pytest.raises(tarfile.TarError, match="<AISShardReader> Error opening tar file: "):
        by_ours(gzip.compress(plain)[:-9])


@pytest.mark.parametrize(
    "content",
    [b"", b"no archive" * 100, tar(samples(0, 5))[:700], b"\x28\xb5\x2f\xfd" + b"0" * 600],
    ids=["empty", "text", "cut", "zstd"],
)
def test_what_is_no_tar_is_an_error(content: bytes) -> None:
    with pytest.raises(tarfile.TarError, match="<AISShardReader> Error opening tar file: "):
        by_ours(content)


def test_list_and_len_count_samples(server: FaultServer) -> None:
    for i in range(4):
        server.put("bucket", f"{i}.tar", tar([*samples(5 * i, 5 * i + 5), ("README", b"")]))
    reader = AISShardReader(URL)
    assert len(reader) == 20
    assert reader._observed_keys == set()  # those of a pass alone
    assert [key for key, _ in list(reader)] == [f"sample_{i}" for i in range(20)]


@pytest.mark.parametrize("workers", [0, 2, 3])
def test_workers_share_the_shards(
    server: FaultServer, workers: int, count: Callable[[str], int]
) -> None:
    for i in range(6):
        server.put("bucket", f"{i}.tar", tar(samples(5 * i, 5 * i + 5)))
    loader = DataLoader(AISShardReader(URL), batch_size=None, num_workers=workers)
    assert sorted(key for key, _ in loader) == sorted(f"sample_{i}" for i in range(30))
    assert (count("list"), count("media")) == (max(workers, 1), 6)


_READS_A_LARGE_SHARD = """
    import sys
    import headrace
    from headrace.compat.aistore.pytorch import AISShardReader
    url, budget = sys.argv[1], int(sys.argv[2])
    headrace.configure(memory_budget_bytes=budget)
    reader = AISShardReader(url)
    def private_kib():
        for line in open("/proc/self/status"):
            if line.startswith("RssAnon"):
                return int(line.split()[1])
    before, most = private_kib(), 0
    for i, (key, fields) in enumerate(reader):
        assert key == f"{i:04d}" and fields["bin"] == i.to_bytes(2, "big") * (1 << 19), key
        most = max(most, private_kib())
    print(i + 1, (most - before) // 1024)
"""
_BUDGET_MIB = 32
# Beside the budget: what is copied at once into the temporary file, a member as the user has it and
# the one before, the interpreter's own.
_BESIDE_MIB = 32


@pytest.mark.parametrize("count", [96, pytest.param(2048, marks=pytest.mark.soak)])
def test_a_large_shard_is_not_held_in_memory(tmp_path: Path, count: int) -> None:
    with tarfile.open(tmp_path / "large.tar", "w") as archive:
        for i in range(count):
            entry = tarfile.TarInfo(f"{i:04d}.bin")
            entry.size = 1 << 20
            archive.addfile(entry, io.BytesIO(i.to_bytes(2, "big") * (1 << 19)))
    done = subprocess.run(
        [
            *(sys.executable, "-c", textwrap.dedent(_READS_A_LARGE_SHARD)),
            *(str(tmp_path), str(_BUDGET_MIB << 20)),
        ],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    number, grown_mib = map(int, done.stdout.split())
    assert number == count
    # Not the bytes of the shard, however many there are.
    assert grown_mib < _BUDGET_MIB + _BESIDE_MIB, f"{grown_mib} MiB"


# ---- rows of several streams


def streams(*prefixes: str) -> list[Any]:
    bucket = headrace.Store(URL)
    return [SimpleNamespace(bucket=bucket, prefix=each, etl_name=None) for each in prefixes]


@pytest.fixture
def rows(server: FaultServer) -> list[tuple[bytes, bytes]]:
    """Two streams of three shards each, whose members are in another order than their names."""
    found = []
    for shard in range(3):
        members = [(f"{i:02d}", f"{shard}/{i}".encode()) for i in range(20)]
        server.put("bucket", f"images/{shard}.tar", tar([(f"{n}.jpg", c) for n, c in members]))
        server.put(
            "bucket", f"labels/{shard}.tar", tar([(f"{n}.cls", b"l" + c) for n, c in members[::-1]])
        )
        found += [(content, b"l" + content) for _, content in members]
    server.put("bucket", "labels/notes.txt", b"no shard")
    return found


def test_rows_have_the_members_of_each_stream_by_name(
    rows: list[Any], count: Count, caplog: pytest.LogCaptureFixture
) -> None:
    dataset = AISMultiShardStream(streams("images/", "labels/"))
    assert list(dataset) == rows
    assert (count("list"), count("media")) == (2, 6)  # not one request for each member
    assert "labels/notes.txt is left out of the stream" in caplog.text


def test_rows_end_with_the_shortest_stream(rows: list[Any]) -> None:
    assert list(AISMultiShardStream(streams("images/", "labels/1"))) == [
        (image, label) for (image, _), (_, label) in zip(rows, rows[20:40], strict=False)
    ]


def test_workers_share_the_rows(rows: list[Any]) -> None:
    loader = DataLoader(
        AISMultiShardStream(streams("images/", "labels/")), batch_size=None, num_workers=2
    )
    assert [tuple(row) for row in loader] == rows


def test_a_zip_is_a_shard_too(server: FaultServer) -> None:
    server.put("bucket", "a.zip", _zip([("b", b"2"), ("a", b"1")]))
    server.put("bucket", "b.tgz", gzip.compress(tar([("c", b"3")])))
    assert list(AISMultiShardStream(streams(""))) == [(b"1",), (b"2",), (b"3",)]


def linked(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, target
    return entry


def tar_of_entries(*entries: tarfile.TarInfo | tuple[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for each in entries:
            if isinstance(each, tarfile.TarInfo):
                archive.addfile(each)
            else:
                entry = tarfile.TarInfo(each[0])
                entry.size = len(each[1])
                archive.addfile(entry, io.BytesIO(each[1]))
    return out.getvalue()


def test_links_and_pipes_shift_no_row(server: FaultServer) -> None:
    images = tar_of_entries(
        ("d/a.jpg", b"A"), linked("d/b.jpg", tarfile.LNKTYPE, "d/a.jpg"),
        linked("d/c.jpg", tarfile.SYMTYPE, "../d/b.jpg"), linked("d/d", tarfile.DIRTYPE),
        linked("d/e.fifo", tarfile.FIFOTYPE), ("d/f.jpg", b"F"),
    )  # fmt: skip
    server.put("bucket", "images/0.tar", images)
    server.put("bucket", "labels/0.tar", tar([(name, name.encode()) for name in "abcef"]))
    assert list(AISMultiShardStream(streams("images/", "labels/"))) == [
        (b"A", b"a"), (b"A", b"b"), (b"A", b"c"), (b"", b"e"), (b"F", b"f"),
    ]  # fmt: skip
    assert by_ours(images) == by_original(images)  # whose samples have no links


@pytest.mark.parametrize("kind", [tarfile.LNKTYPE, tarfile.SYMTYPE])
@pytest.mark.parametrize("target", ["b", "none"])
def test_a_link_to_nothing_is_an_error(server: FaultServer, kind: bytes, target: str) -> None:
    shard = tar_of_entries(("a", b"A"), linked("b", kind, target))
    server.put("bucket", "0.tar", shard)
    rows = iter(AISMultiShardStream(streams("")))
    assert next(rows) == (b"A",)
    with pytest.raises(tarfile.TarError, match=f"0.tar: the member 'b' is a link to '{target}'"):
        next(rows)


def test_an_error_names_the_shard(server: FaultServer) -> None:
    server.put("bucket", "0.tar", tar([("a.jpg", b"1")]))
    server.put("bucket", "1.tar", tar([("b.jpg", b"x" * 5000)])[:2000])
    for kind, dataset in (
        ("AISShardReader", AISShardReader(URL)),
        ("AISMultiShardStream", AISMultiShardStream(streams(""))),
    ):
        samples = iter(dataset)  # type: ignore[call-overload]
        next(samples)
        with pytest.raises(tarfile.TarError, match=f"<{kind}> Error opening tar file: 1.tar: "):
            next(samples)


def test_a_datashard_names_a_bucket() -> None:
    with pytest.raises(ValueError, match="no buckets of the provider 'hdfs'"):
        DataShard("http://127.0.0.1:1", "bucket", provider="hdfs")
