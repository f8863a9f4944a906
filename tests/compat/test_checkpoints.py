"""The checkpoint, Lightning and multipart names of dataflux, and its faults that are not here."""

from __future__ import annotations

import contextlib
import gc
import inspect
import io
import pickle
import random
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp

import headrace
from headrace.compat import dataflux_pytorch
from headrace.compat.dataflux_pytorch import dataflux_checkpoint
from headrace.compat.dataflux_pytorch.dataflux_checkpoint import (
    DatafluxCheckpoint,
    DatafluxCheckpointBuffer,
)
from headrace.compat.dataflux_pytorch.lightning import (
    DatafluxFSDPStrategy,
    DatafluxLightningAsyncCheckpoint,
    DatafluxLightningCheckpoint,
    GCSDistributedReader,
    GCSDistributedWriter,
    GCSFileSystem,
    dataflux_lightning_checkpoint,
)
from headrace.compat.dataflux_pytorch.lightning.path_utils import (
    parse_gcs_path,
    process_input_path,
)
from headrace.compat.dataflux_pytorch.multipart_upload import multipart
from testing.faultserver.client import FaultServer
from tests.compat.bucket import BUCKET

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")

MIB = 1 << 20
STATE = {"w": torch.arange(1000.0), "step": 3}


class FakeClient:
    """Not Google's: an object with some of its methods, and the objects in memory."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        info = SimpleNamespace(user_agent="theirs")
        self._connection = SimpleNamespace(_client_info=info)

    def bucket(self, name: str) -> FakeBucket:
        return FakeBucket(self, name)


class FakeBucket:
    def __init__(self, client: FakeClient, name: str) -> None:
        self.client, self.name = client, name

    def blob(self, name: str) -> FakeBlob:
        return FakeBlob(self, name)

    def list_blobs(self, prefix: str = "", **_: Any) -> list[FakeBlob]:
        return [self.blob(n) for n in self.client.objects if n.startswith(prefix)]


class FakeBlob:
    def __init__(self, bucket: FakeBucket, name: str) -> None:
        self.name = name
        self.objects = bucket.client.objects

    def download_as_bytes(self, **_: Any) -> bytes:
        return self.objects[self.name]

    def exists(self) -> bool:
        return self.name in self.objects

    def delete(self) -> None:
        self.objects.pop(self.name, None)

    @contextlib.contextmanager
    def open(self, mode: str) -> Iterator[Any]:
        """Give what can be written, and no more than that."""
        assert mode == "wb"
        content = io.BytesIO()
        yield SimpleNamespace(write=content.write)
        self.objects[self.name] = content.getvalue()


class BreaksOff:
    """A file of another kind: what is closed is there, and not all can be written."""

    def __init__(self, blob: FakeBlob) -> None:
        self.blob = blob

    def __enter__(self) -> BreaksOff:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, data: bytes) -> int:
        raise OSError("broke off")

    def close(self) -> None:
        self.blob.objects[self.blob.name] = b"the beginning"


def checkpoint(client: Any = None) -> DatafluxCheckpoint:
    return DatafluxCheckpoint("project", BUCKET, client)


@pytest.fixture(params=["engine", "another client"])
def client(request: pytest.FixtureRequest, server: FaultServer) -> Any:
    return None if request.param == "engine" else FakeClient()


# ---- streams


def test_what_another_client_cannot_write_whole_is_not_published() -> None:
    blob = FakeClient().bucket(BUCKET).blob("a")
    blob.objects["a"] = b"previous"
    blob.open = lambda mode: BreaksOff(blob)  # type: ignore[method-assign, assignment]
    with pytest.raises(OSError, match="broke off"):
        multipart.upload_chunks_concurrently_from_bytesio(io.BytesIO(b"0123456789"), blob)
    assert blob.objects["a"] == b"previous"


def test_torch_save_and_load_go_through_the_streams(client: Any) -> None:
    streams = checkpoint(client)
    for zipped in (True, False):
        with streams.writer("a/b.pt") as writer:
            torch.save(STATE, writer, _use_new_zipfile_serialization=zipped)
        with streams.reader("a/b.pt") as reader:
            assert torch.equal(torch.load(reader)["w"], STATE["w"])


def test_an_exception_in_the_block_leaves_the_good_checkpoint(client: Any) -> None:
    streams = checkpoint(client)
    with streams.writer("c.pt") as writer:
        writer.write(b"good")

    def fail() -> None:
        with streams.writer("c.pt") as writer:
            writer.write(b"half of a ba")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert streams.reader("c.pt").read() == b"good"


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_a_writer_that_is_dropped_publishes_nothing(client: Any) -> None:
    streams = checkpoint(client)
    with streams.writer("c.pt") as writer:
        writer.write(b"good")
    writer = streams.writer("c.pt")
    writer.write(b"half")
    del writer
    gc.collect()
    assert streams.reader("c.pt").read() == b"good"


def test_a_close_while_an_exception_is_on_its_way_leaves_the_good_one(client: Any) -> None:
    streams = checkpoint(client)
    with streams.writer("c.pt") as writer:
        writer.write(b"good")

    def save() -> None:
        writer = streams.writer("c.pt")
        try:
            writer.write(b"half")
            raise KeyError
        finally:
            writer.close()

    with pytest.raises(KeyError):
        save()
    assert streams.reader("c.pt").read() == b"good"
    # One that was made because of the exception is written.
    try:
        raise KeyError
    except KeyError:
        writer = streams.writer("c.pt")
        writer.write(b"another")
        writer.close()
    assert streams.reader("c.pt").read() == b"another"


def test_closing_twice_writes_once_and_an_empty_file_is_one(
    client: Any, server: FaultServer
) -> None:
    streams = checkpoint(client)
    writer = streams.writer("empty.pt")
    writer.close()
    requests = len(server.log())
    writer.close()
    assert len(server.log()) == requests
    assert streams.reader("empty.pt").read() == b""
    assert server.uploads() == {"resumable": [], "multipart": []}


def test_a_client_of_another_kind_is_used_itself_and_told_who_uses_it(server: FaultServer) -> None:
    fake = FakeClient()
    streams = checkpoint(fake)
    writer = streams.writer("x")
    assert isinstance(writer, DatafluxCheckpointBuffer)
    assert isinstance(streams.bucket, FakeBucket)
    writer.write(b"data")
    writer.close()
    assert isinstance(streams.reader("x"), io.BytesIO)
    assert fake._connection._client_info.user_agent == "dataflux/1.0 theirs"
    assert server.log() == []


def test_parts_leave_while_a_checkpoint_is_written_and_come_ahead_of_who_reads(
    server: FaultServer,
) -> None:
    streams = checkpoint()
    piece, pieces = b"x" * MIB, 170
    with streams.writer("large.pt") as writer:
        for _ in range(pieces):
            writer.write(piece)
        # Nine parts of 16 MiB may be here; so some have been there before the end.
        assert [r for r in server.log() if r["kind"] in ("upload", "multipart_part")]
    server.reset(keep_buckets=True)
    with streams.reader("large.pt") as reader:
        assert reader.read(MIB) == piece
        assert sum(r["bytes_sent"] for r in server.log()) < 100 * MIB
        for _ in range(pieces - 1):
            assert reader.read(MIB) == piece
        assert reader.read(1) == b""
    assert sum(r["kind"] == "media" for r in server.log()) > 8


# ---- uploads from a buffer


def google_blob(server: FaultServer, name: str) -> Any:
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage

    client = storage.Client(
        project="p",
        credentials=AnonymousCredentials(),
        client_options={"api_endpoint": server.url},
    )
    return client.bucket(BUCKET).blob(name)


def test_a_buffer_becomes_an_object_also_when_parts_are_tried_again(server: FaultServer) -> None:
    data = random.Random(1).randbytes(1_000_000)
    rule = {"match": {"kind": "upload"}, "fraction": 0.3, "seed": 5, "action": {"status": 503}}
    server.faults([rule])
    multipart.upload_chunks_concurrently_from_bytesio(
        io.BytesIO(data), google_blob(server, "big"), chunk_size=100_000, content_type="x/y"
    )
    server.faults([])
    assert server.get(BUCKET, "big") == data
    assert server.names(BUCKET) == ["big"]
    multipart.upload_chunks_concurrently_from_bytesio(io.BytesIO(), google_blob(server, "none"))
    assert server.get(BUCKET, "none") == b""


@pytest.mark.parametrize("piece_bytes", [-1, 1_000_000, 100_000, 7001])
def test_a_whole_read_of_damaged_bytes_raises(server: FaultServer, piece_bytes: int) -> None:
    data = random.Random(2).randbytes(2_500_000)
    server.put(BUCKET, "a", data)
    with checkpoint().reader("a") as file:
        assert file.read() == data
    server.faults([{"match": {"kind": "media"}, "action": {"flip_byte": 17}}])
    got = bytearray()

    def read_all(file: Any) -> None:
        while piece := file.read(piece_bytes):
            got.extend(piece)

    with checkpoint().reader("a") as file, pytest.raises(headrace.CorruptDataError) as caught:
        read_all(file)
    assert caught.value.url == f"gs://{BUCKET}/a"
    # The read that would have made it whole has handed out nothing.
    assert len(got) < len(data)
    with checkpoint().reader("a") as file, pytest.raises(headrace.CorruptDataError):
        file.readinto(bytearray(len(data)))


def test_torch_load_of_damaged_bytes_raises(server: FaultServer) -> None:
    with checkpoint().writer("state.pt") as file:
        torch.save({"w": torch.zeros(1_000_000)}, file)
    server.faults([{"match": {"kind": "media"}, "action": {"flip_byte": 100_000}}])
    with checkpoint().reader("state.pt") as file, pytest.raises(headrace.CorruptDataError):
        torch.load(io.BytesIO(file.read()))


def test_a_deadline_ends_an_upload(server: FaultServer) -> None:
    # The third answer asks for more time than is left.
    rule = {"match": {"kind": "upload"}, "action": {"status": 503}}
    server.faults([rule | {"count": 2}, rule | {"action": {"status": 503, "retry_after_s": 3600}}])
    with pytest.raises(headrace.TimedOutError, match="deadline") as caught:
        multipart.upload_chunks_concurrently_from_bytesio(
            io.BytesIO(b"data"), google_blob(server, "late"), deadline=3000
        )
    # It was tried again until there was no time left, and no more often. In between it asks whether
    # the attempt before has written the object after all.
    sent = {kind: count for kind, count in server.stats()["by_kind"].items() if count}
    assert sent == {"upload": 3, "get": 2}
    assert sum(sent.values()) == caught.value.attempts
    assert server.names(BUCKET) == []


def test_an_answer_that_does_not_come_within_the_timeout_is_not_waited_for(
    server: FaultServer,
) -> None:
    server.faults([{"match": {"kind": "upload"}, "count": 1, "action": {"stall_head": True}}])
    multipart.upload_chunks_concurrently_from_bytesio(
        io.BytesIO(b"data"), google_blob(server, "x"), timeout=0.2
    )
    server.release()
    assert server.get(BUCKET, "x") == b"data"


# ---- Lightning


@pytest.mark.parametrize("path", [f"gs://{BUCKET}/a.ckpt", Path(f"gcs://{BUCKET}/a.ckpt")])
def test_lightnings_plugin_saves_loads_and_removes(client: Any, path: Any) -> None:
    plugin = DatafluxLightningCheckpoint("project", client)
    plugin.save_checkpoint(STATE, path)
    for options in ({}, {"weights_only": None}, {"weights_only": True, "map_location": "cpu"}):
        assert torch.equal(plugin.load_checkpoint(path, **options)["w"], STATE["w"])
    plugin.remove_checkpoint(path)
    with pytest.raises((FileNotFoundError, KeyError)):
        plugin.load_checkpoint(path)
    plugin.teardown()


@pytest.mark.parametrize("kind", ["absolute", "relative", "pathlib", "url"])
def test_lightnings_plugin_takes_the_local_paths_of_lightnings_callbacks(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "logs" / "epoch=0.ckpt"
    path = {
        "absolute": str(file),
        "relative": "logs/epoch=0.ckpt",
        "pathlib": Path("logs/epoch=0.ckpt"),
        "url": f"file://{file}",
    }[kind]
    plugin = DatafluxLightningCheckpoint("project", client)
    plugin.save_checkpoint(STATE, path)
    assert torch.equal(torch.load(file)["w"], STATE["w"])
    assert plugin.load_checkpoint(path)["step"] == 3
    in_background = DatafluxLightningAsyncCheckpoint("project", client)
    in_background.save_checkpoint({"step": 4}, path)
    in_background.teardown()
    assert plugin.load_checkpoint(path) == {"step": 4}
    plugin.remove_checkpoint(path)
    assert not file.exists()


@pytest.mark.parametrize("path", ["", "gs://", "s3://b/k", Path("s3://b/k")])
def test_lightnings_plugin_refuses_what_is_neither_in_a_bucket_of_googles_nor_local(
    client: Any, path: Any
) -> None:
    plugin = DatafluxLightningCheckpoint("project", client)
    with pytest.raises(ValueError, match=r"path is empty|names no bucket|begin with gs:"):
        plugin.save_checkpoint(STATE, path)


@pytest.mark.parametrize(
    ("arguments", "keywords"),
    [
        (("project",), {}),
        (("project", None, True), {}),
        (("project", BUCKET), {}),
        (("project", BUCKET, None), {}),
        ((), {"project_name": "project", "bucket_name": BUCKET}),
        ((), {"project_name": "project", "storage_client": None, "disable_multipart": True}),
    ],
)
def test_both_historic_signatures_are_taken(
    server: FaultServer, arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> None:
    plugin = DatafluxLightningCheckpoint(*arguments, **keywords)
    plugin.save_checkpoint(STATE, f"gs://{BUCKET}/b.ckpt")
    assert server.names(BUCKET) == ["b.ckpt"]


def test_a_client_behind_the_buckets_name_is_the_client(server: FaultServer) -> None:
    fake = FakeClient()
    plugin = DatafluxLightningCheckpoint("project", BUCKET, fake)
    plugin.save_checkpoint(STATE, f"gs://{BUCKET}/b.ckpt")
    assert list(fake.objects) == ["b.ckpt"]
    assert plugin.storage_client is fake


def test_the_async_plugin_tells_its_errors(server: FaultServer) -> None:
    plugin = DatafluxLightningAsyncCheckpoint("project")
    plugin.save_checkpoint(STATE, f"gs://{BUCKET}/c.ckpt")
    plugin.teardown()
    assert server.names(BUCKET) == ["c.ckpt"]
    server.faults([{"match": {"kind": "upload"}, "action": {"status": 403}}])
    plugin.save_checkpoint(STATE, f"gs://{BUCKET}/d.ckpt")
    with pytest.raises(headrace.PermissionDeniedError):
        plugin.teardown()


def test_the_strategy_uses_the_client_that_it_is_given_and_asks_for_no_ranks_yet(
    server: FaultServer,
) -> None:
    given = google_blob(server, "x").client
    strategy = DatafluxFSDPStrategy("project", given, use_async=True)
    assert strategy.storage_client is given
    assert strategy._files.options["endpoint"] == server.url
    assert strategy._state_dict_type == "sharded"
    assert "weights_only" in inspect.signature(strategy.load_checkpoint).parameters
    with pytest.raises(headrace.InvalidArgumentError, match="FakeClient"):
        DatafluxFSDPStrategy("project", FakeClient())


# ---- torch.distributed.checkpoint


def test_distributed_checkpoints_are_saved_over_an_old_one_and_loaded_in_part(
    server: FaultServer,
) -> None:
    url = f"gs://{BUCKET}/run/step1"
    state = {f"layer{i}": torch.full((300_000,), float(i)) for i in range(10)}
    for _ in range(2):
        writer = GCSDistributedWriter(
            Path(url), "project", None, thread_count=2, sync_files=False, overwrite=True
        )
        dcp.save(state, storage_writer=writer)
        assert len(server.names(BUCKET)) == 3  # two files, .metadata
    server.reset(keep_buckets=True)
    loaded = {"layer3": torch.zeros(300_000)}
    dcp.load(loaded, storage_reader=GCSDistributedReader(url, "project"))
    assert torch.equal(loaded["layer3"], state["layer3"])
    # Upstream's reader fetches whole files, each of 6 MB.
    assert sum(r["bytes_sent"] for r in server.log()) < 1_400_000


def test_one_writer_saves_in_the_background_to_one_folder_after_the_other(
    server: FaultServer,
) -> None:
    """As the original's README does."""
    writer = GCSDistributedWriter(f"gs://{BUCKET}/run", "project", None)
    state = {"w": torch.zeros(10)}
    for step in range(3):
        state["w"].fill_(step)
        path = Path(f"gs://{BUCKET}/run/{step}")
        saved = dcp.async_save(state, checkpoint_id=path, storage_writer=writer, no_dist=True)
        state["w"].fill_(-1)
        saved.result()  # type: ignore[union-attr]
    for step in range(3):
        loaded = {"w": torch.zeros(10)}
        reader = GCSDistributedReader(f"gs://{BUCKET}/run/{step}", "project", None)
        dcp.load(loaded, storage_reader=reader)
        assert torch.equal(loaded["w"], torch.full((10,), float(step)))


def test_a_failed_save_leaves_no_new_data_under_old_metadata(server: FaultServer) -> None:
    url = f"gs://{BUCKET}/run/step1"
    dcp.save({"w": torch.ones(10)}, storage_writer=GCSDistributedWriter(url, "project"))
    server.faults([{"match": {"kind": "upload"}, "from": 2, "action": {"status": 403}}])
    with pytest.raises(dcp.CheckpointException):
        dcp.save({"w": torch.zeros(10)}, storage_writer=GCSDistributedWriter(url, "project"))
    server.faults([])
    loaded = {"w": torch.zeros(10)}
    dcp.load(loaded, storage_reader=GCSDistributedReader(url, "project"))
    assert torch.equal(loaded["w"], torch.ones(10))


def test_files_of_the_file_system_come_and_go(client: Any) -> None:
    fs = GCSFileSystem("project", False, client)
    with fs.create_stream(f"gs://{BUCKET}/x", "wb") as stream:
        stream.write(b"data")
    with fs.create_stream(Path(f"gs://{BUCKET}/x"), "rb") as stream:
        assert stream.read() == b"data"
    assert fs.exists(f"gs://{BUCKET}/x")
    fs.rm_file(f"gs://{BUCKET}/x")
    assert not fs.exists(f"gs://{BUCKET}/x")


def test_torchs_own_writer_works_on_the_file_system(server: FaultServer) -> None:
    writer = dcp.FileSystemWriter("unused", sync_files=False)
    writer.fs = GCSFileSystem("project", False)
    dcp.save({"w": torch.ones(10)}, checkpoint_id=f"gs://{BUCKET}/run", storage_writer=writer)
    loaded = {"w": torch.zeros(10)}
    dcp.load(loaded, storage_reader=GCSDistributedReader(f"gs://{BUCKET}/run", "project"))
    assert torch.equal(loaded["w"], torch.ones(10))
    urls = writer.fs.ls(f"gs://{BUCKET}/run")
    assert sorted(urls) == [f"gs://{BUCKET}/run/.metadata", f"gs://{BUCKET}/run/__0_0.distcp"]


def test_the_file_system_says_what_it_cannot_do(server: FaultServer) -> None:
    fs = GCSFileSystem("project", False)
    message = "Invalid mode argument, create_stream only supports rb (read mode) & wb (write mode)"
    with pytest.raises(ValueError) as caught, fs.create_stream(f"gs://{BUCKET}/x", "ab"):
        pass
    assert str(caught.value) == message
    with pytest.raises(headrace.InvalidArgumentError, match="different buckets"):
        fs.rename(f"gs://{BUCKET}/x", "gs://another/x")
    assert fs.init_path("/a") == Path("/a")
    path = Path("/a")
    assert fs.init_path(path) is path
    assert fs.concat_path("/a", "b") == Path("/a/b")
    assert fs.exists(f"gs://{BUCKET}/")
    assert not fs.exists("gs://no-such-bucket/x")
    assert GCSFileSystem.validate_checkpoint_id(Path("any"))
    with pytest.raises(ValueError):
        GCSFileSystem.validate_checkpoint_id("any")
    with pytest.raises(headrace.InvalidArgumentError, match="FakeClient"):
        GCSDistributedWriter(f"gs://{BUCKET}/x", "project", FakeClient())
    assert pickle.loads(pickle.dumps(GCSDistributedWriter(f"gs://{BUCKET}/x", "p"))).checkpoint_id


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("gs://b/k", ("b", "k")),
        ("gcs://b/a/k", ("b", "a/k")),
        (Path("gs://b/a/k"), ("b", "a/k")),
        ("gs://b", ("b", "")),
        ("gs://b/k/", ("b", "k/")),
        (Path("gs://b/k:/x"), ("b", "k:/x")),
        ("", ValueError),
        ("s3://b/k", ValueError),
        ("gs://", ValueError),
        ("gs:///k", ValueError),
        (Path("b/k"), ValueError),
        ({}, TypeError),
        (None, TypeError),
    ],
)
def test_paths_are_parsed_as_upstream_does(path: Any, expected: Any) -> None:
    if isinstance(expected, tuple):
        assert parse_gcs_path(path) == expected
        assert process_input_path(path).startswith(("gs://", "gcs://"))
    else:
        with pytest.raises(expected):
            parse_gcs_path(path)


def test_names_are_where_upstream_has_them() -> None:
    assert dataflux_checkpoint.upload is multipart.upload_chunks_concurrently_from_bytesio
    assert dataflux_lightning_checkpoint.DatafluxLightningAsyncCheckpoint is (
        DatafluxLightningAsyncCheckpoint
    )
    assert multipart.TM_DEFAULT_CHUNK_SIZE == 33554432
    assert multipart.DEFAULT_MAX_WORKERS == 8
    assert set(dataflux_pytorch.lightning.__all__) >= {
        "DatafluxLightningAsyncCheckpoint",
        "DatafluxLightningCheckpoint",
        "GCSDistributedReader",
        "GCSDistributedWriter",
        "GCSFileSystem",
    }
    signature = inspect.signature(multipart.upload_chunks_concurrently_from_bytesio)
    assert list(signature.parameters) == [
        "bytesio",
        "blob",
        "content_type",
        "chunk_size",
        "deadline",
        "max_workers",
        "checksum",
        "timeout",
        "retry",
    ]
