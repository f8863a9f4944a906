"""Objects for which 10,000 parts of 16 MiB are too few, of known and of unknown size.

Nothing as large is sent: the service refuses each part, whose size tells what was chosen.
"""

from __future__ import annotations

import ast
import logging
import mmap
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import headrace
import headrace.fsspec
from headrace import _engine
from headrace._files.writer_io import write_file
from headrace._process import process
from headrace.checkpoint._distributed.upload import upload
from testing.faultserver.client import FaultServer
from tests.keys import S3_KEYS
from tests.s3.conftest import Configure

GiB = 1 << 30
SIZE_BYTES = 160 * GiB
PACKAGE = Path(headrace.__file__).resolve().parent


@pytest.fixture
def refusing(s3_server: FaultServer) -> Iterator[FaultServer]:
    """A service that refuses parts."""
    s3_server.bucket("bucket")
    s3_server.faults([{"match": {"kind": "multipart_part"}, "action": {"status": 403}}])
    yield s3_server
    s3_server.faults([])


@pytest.fixture(scope="module")
def memory() -> mmap.mmap:
    """Zeros that take no memory until they are written."""
    reserves_nothing = getattr(mmap, "MAP_NORESERVE", 0x4000)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | reserves_nothing
    return mmap.mmap(-1, SIZE_BYTES, flags=flags, prot=mmap.PROT_READ | mmap.PROT_WRITE)


@pytest.fixture
def sparse(tmp_path: Path) -> Path:
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(SIZE_BYTES)
    return path


def open_store(server: FaultServer, url: str = "s3://bucket", **options: Any) -> headrace.Store:
    return headrace.Store(url, endpoint=server.url, credentials=S3_KEYS, **options)


def part_sizes(server: FaultServer) -> list[int]:
    parts = [entry for entry in server.log() if entry["kind"] == "multipart_part"]
    return [int(entry["headers"]["content-length"]) for entry in parts]


def save(name: str) -> Callable[[FaultServer, mmap.mmap, Path], None]:
    def call(server: FaultServer, memory: mmap.mmap, _: Path) -> None:
        state = {"w": torch.frombuffer(memory, dtype=torch.uint8)}
        options = {"checksums": False} if name.endswith(".safetensors") else {}
        headrace.checkpoint.save(state, name, store=open_store(server), **options)

    return call


def save_distributed(server: FaultServer, memory: mmap.mmap, _: Path) -> None:
    upload(open_store(server), "rank0", [memoryview(memory)], None, SIZE_BYTES)


def put_file(server: FaultServer, _: mmap.mmap, sparse: Path) -> None:
    options = {"endpoint": server.url, "credentials": S3_KEYS}
    files = headrace.fsspec.S3FileSystem(**options)
    files.put_file(str(sparse), "bucket/copy")


def copy_by_command(server: FaultServer, _: mmap.mmap, sparse: Path) -> None:
    key = {
        "AWS_ACCESS_KEY_ID": S3_KEYS.access_key_id,
        "AWS_SECRET_ACCESS_KEY": S3_KEYS.secret_access_key,
        "AWS_ENDPOINT_URL_S3": server.url,
    }
    command = [sys.executable, "-m", "headrace", "cp", str(sparse), "s3://bucket/copy"]
    result = subprocess.run(command, env={**os.environ, **key}, check=False, capture_output=True)
    assert result.returncode != 0


@pytest.mark.parametrize(
    "write",
    [save("a.pt"), save("a.safetensors"), save_distributed, put_file, copy_by_command],
    ids=["pt", "safetensors", "distributed", "put_file", "cp"],
)
def test_whoever_knows_the_size_sends_parts_by_which_it_fits(
    refusing: FaultServer,
    memory: mmap.mmap,
    sparse: Path,
    write: Callable[[FaultServer, mmap.mmap, Path], None],
) -> None:
    if write is copy_by_command:
        write(refusing, memory, sparse)
    else:
        with pytest.raises(headrace.PermissionDeniedError):
            write(refusing, memory, sparse)
    assert part_sizes(refusing)
    assert all(size * 10_000 >= SIZE_BYTES for size in part_sizes(refusing))


def test_a_stream_of_unknown_size_is_not_refused_at_ten_thousand_usual_parts(
    refusing: FaultServer, memory: mmap.mmap
) -> None:
    writer = open_store(refusing).open_writer("stream")
    with pytest.raises(headrace.PermissionDeniedError):
        writer.write_lent(memory)  # more than 10,000 parts of 16 MiB at once
    writer.abort()
    assert set(part_sizes(refusing)) == {16 << 20}


def test_what_cannot_fit_is_refused_before_anything_is_sent(s3_server: FaultServer) -> None:
    store = open_store(s3_server)
    with pytest.raises(headrace.InvalidArgumentError, match="no object of more than 5497558138880"):
        store.open_writer("a", expected_size_bytes=(5 << 40) + 1)
    with pytest.raises(headrace.InvalidArgumentError, match="with part_bytes 16777216 it would"):
        headrace.open("a", "wb", store=store, part_bytes=16 << 20, expected_size_bytes=200 * GiB)
    state = {"w": torch.zeros(1)}
    with pytest.raises(headrace.InvalidArgumentError, match="part_bytes is 1;"):
        headrace.checkpoint.save(state, "a.pt", store=store, part_bytes=1)
    with pytest.raises(headrace.InvalidArgumentError, match="part_bytes is 1;"):
        headrace.checkpoint.save(state, "a.safetensors", store=store, part_bytes=1)
    assert s3_server.log() == []


def test_the_log_says_how_far_the_parts_of_a_writer_reach(
    s3_server: FaultServer, caplog: pytest.LogCaptureFixture
) -> None:
    s3_server.bucket("bucket")
    with caplog.at_level(logging.DEBUG, logger="headrace"):
        store = open_store(s3_server)
        store.exists("a")  # a wait, in which the level is noticed
        with store.open_writer("a") as writer:
            writer.write(b"1")
    assert (
        "s3://bucket/a: parts of 16777216 bytes that grow to 134217728 bytes, for an object of at "
        "most 1056964608000 bytes"
    ) in caplog.messages


def open_writer(
    server: FaultServer,
    *,
    equal: bool = False,
    expected_size_bytes: int | None = None,
    checksum: Any = "auto",
) -> headrace.ObjectWriter:
    """A writer of at most 20 parts, two of which are under way at a time."""
    server.bucket("bucket")
    server.uploads_config(min_part_bytes=1, max_parts=20, equal_parts=equal)
    provider = headrace.S3Options(equal_parts=True if equal else None, checksum=checksum)
    few = headrace.RetryOptions(max_attempts=3, initial_backoff_s=0.001)
    store = open_store(server, provider=provider, retry=few)
    options = store._settings.engine_options("s3")
    limits = {"max_multipart_parts": 20, "min_multipart_part_bytes": 1}
    handle = _engine.StoreHandle(process.current_engine(), store.url, {**options, **limits})
    return handle.open_writer(
        "a",
        if_generation=None,
        content_type="",
        content_encoding="",
        part_bytes=None,
        expected_size_bytes=expected_size_bytes,
        max_parts_in_flight=2,
        upload="",
    )


@pytest.mark.parametrize("equal", [False, True])
def test_an_object_of_twenty_parts_comes_back(
    configure: Configure, s3_server: FaultServer, equal: bool
) -> None:
    configure(memory_budget_bytes=4 << 20)
    data = os.urandom(1 << 20) * 38
    with open_writer(s3_server, equal=equal) as writer:
        writer.write(data)
    assert s3_server.get("bucket", "a") == data
    sizes = part_sizes(s3_server)
    assert len(sizes) == (19 if equal else 20)
    assert set(sizes) == ({2 << 20} if equal else {1 << 20, 2 << 20})


# ── Parts that are larger than the memory for them ───────────────────────────────────────────────

BUDGET = 4 << 20
FILE_BYTES = (60 << 20) + 77


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(1 << 20) * (FILE_BYTES >> 20) + bytes(77))
    return path


@pytest.fixture
def small_memory(configure: Configure) -> None:
    configure(memory_budget_bytes=BUDGET)


def send_file(writer: headrace.ObjectWriter, path: Path) -> headrace.ObjectInfo:
    with path.open("rb") as file:
        assert sum(write_file(writer, file)) == path.stat().st_size
    return writer.close()


@pytest.mark.parametrize("equal", [False, True])
@pytest.mark.parametrize("checksum", ["crc32c", "crc64nvme", "composite", "md5", "auto"])
def test_a_file_whose_parts_exceed_the_budget_is_sent_within_it(
    small_memory: None, s3_server: FaultServer, file: Path, equal: bool, checksum: Any
) -> None:
    writer = open_writer(s3_server, equal=equal, expected_size_bytes=FILE_BYTES, checksum=checksum)
    send_file(writer, file)
    assert s3_server.get("bucket", "a") == file.read_bytes()
    assert headrace.metrics().memory_peak_live_bytes <= BUDGET
    assert max(part_sizes(s3_server)) == 4 << 20, "two of them are all of the budget"


def test_what_is_written_around_files_keeps_its_place(
    small_memory: None, s3_server: FaultServer, file: Path
) -> None:
    contents = file.read_bytes()
    other = file.with_name("other")
    other.write_bytes(b"a small file")
    parts = [b"in front", file, b"between", other, other, b"behind"]
    expected = b"in front" + contents + b"between" + b"a small file" * 2 + b"behind"
    writer = open_writer(s3_server, expected_size_bytes=len(expected))
    for part in parts:
        if isinstance(part, bytes):
            writer.write(part)
        else:
            with part.open("rb") as source:
                assert sum(write_file(writer, source)) == part.stat().st_size
    writer.close()
    assert s3_server.get("bucket", "a") == expected
    assert headrace.metrics().memory_peak_live_bytes <= 2 * BUDGET, "the first part is held"


@pytest.mark.parametrize(
    "action", ["reset", "lost_answer", {"status": 503}, {"flip_sent_byte": 1_500_000}]
)
def test_a_part_of_a_file_is_read_again_for_the_next_attempt(
    small_memory: None, s3_server: FaultServer, file: Path, action: Any
) -> None:
    rule = {"match": {"kind": "multipart_part"}, "from": 2, "count": 1, "action": action}
    s3_server.faults([rule])
    send_file(open_writer(s3_server, expected_size_bytes=FILE_BYTES), file)
    assert s3_server.get("bucket", "a") == file.read_bytes()
    assert len(part_sizes(s3_server)) == 16 + 1
    assert headrace.metrics().memory_peak_live_bytes <= BUDGET


@pytest.mark.parametrize("checksum", ["crc32c", "none"])
@pytest.mark.parametrize("change", ["written", "cut"])
def test_a_file_that_changes_before_it_was_sent_becomes_no_object(
    small_memory: None, s3_server: FaultServer, file: Path, change: str, checksum: Any
) -> None:
    writer = open_writer(s3_server, expected_size_bytes=FILE_BYTES, checksum=checksum)
    with file.open("r+b") as source:
        assert sum(write_file(writer, source)) == FILE_BYTES
        # The last part is sent at the end.
        if change == "cut":
            source.truncate(FILE_BYTES - 1)
        else:
            source.seek(-1, os.SEEK_END)
            source.write(b"?")
            source.flush()
        with pytest.raises(
            headrace.CorruptDataError, match="has changed" if change == "written" else "shorter"
        ):
            writer.close()
    assert s3_server.names("bucket") == []
    assert s3_server.uploads()["multipart"] == []


def test_put_file_sends_parts_that_the_caller_wants_larger_than_memory(
    small_memory: None, s3_server: FaultServer, file: Path
) -> None:
    s3_server.bucket("bucket")
    files = headrace.fsspec.S3FileSystem(endpoint=s3_server.url, credentials=S3_KEYS)
    files.put_file(str(file), "bucket/a", block_size=16 << 20)
    assert s3_server.get("bucket", "a") == file.read_bytes()
    assert set(part_sizes(s3_server)) == {16 << 20, FILE_BYTES % (16 << 20)}
    assert headrace.metrics().memory_peak_live_bytes <= 6 << 20, "a piece for each of four parts"


@pytest.mark.parametrize("parts", [0, 1, 2])
def test_a_file_of_whole_parts_has_no_part_more(
    s3_server: FaultServer, tmp_path: Path, parts: int
) -> None:
    s3_server.bucket("bucket")
    (tmp_path / "file").write_bytes(bytes(parts * (8 << 20)))
    files = headrace.fsspec.S3FileSystem(endpoint=s3_server.url, credentials=S3_KEYS)
    files.put_file(str(tmp_path / "file"), "bucket/a", block_size=8 << 20)
    assert s3_server.get("bucket", "a") == bytes(parts * (8 << 20))
    assert part_sizes(s3_server) == [8 << 20] * (parts if parts > 1 else 0)


def test_one_part_that_is_larger_than_memory_is_an_object(
    small_memory: None, s3_server: FaultServer, file: Path
) -> None:
    s3_server.bucket("bucket")
    files = headrace.fsspec.S3FileSystem(endpoint=s3_server.url, credentials=S3_KEYS)
    files.put_file(str(file), "bucket/a", block_size=64 << 20)
    assert s3_server.get("bucket", "a") == file.read_bytes()
    assert part_sizes(s3_server) == [FILE_BYTES]
    assert headrace.metrics().memory_peak_live_bytes <= BUDGET


def calls_that_write(module: Path) -> Iterator[ast.Call]:
    for node in ast.walk(ast.parse(module.read_text())):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        modes = [a.value for a in node.args if isinstance(a, ast.Constant)]
        if name == "open_writer" or (name in ("open_object",) and "wb" in modes):
            yield node


# Where nobody knows the size, so that parts grow; or where it does not matter.
UNKNOWN = {
    "compat/dataflux_pytorch/dataflux_checkpoint.py": "a stream that PyTorch writes",
    "fsspec/_reads.py": "a local file, which has no parts",
}


def test_every_write_that_the_package_opens_says_how_large_it_will_be() -> None:
    """Or how large its parts are. Otherwise a large object fails after most of it was sent."""
    said = {"expected_size_bytes", "part_bytes"}
    silent = [
        f"{module.relative_to(PACKAGE)}:{call.lineno}"
        for module in PACKAGE.rglob("*.py")
        for call in calls_that_write(module)
        if not any(each.arg is None or each.arg in said for each in call.keywords)
    ]
    assert {each.partition(":")[0] for each in silent} == set(UNKNOWN), silent
