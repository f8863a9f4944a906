"""Libraries that read and write through fsspec, on a folder and on real servers."""

from __future__ import annotations

import io
import sys
from typing import Any

import fsspec
import numpy as np
import pytest

from testing.faultserver.client import FaultServer
from tests.fsspec.conftest import Place


def table(rows: int = 1000, columns: int = 4) -> Any:
    import pyarrow as pa

    random = np.random.default_rng(rows)
    return pa.table({f"c{i}": random.random(rows) for i in range(columns)})


# ---- pandas


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "json", "parquet", "pkl"])
def test_pandas_reads_what_it_has_written(place: Place, kind: str) -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": [1, 2, 3], "b": [0.5, 1.5, 2.5]})
    url = f"{place.url}/folder/frame.{kind}"
    name = {"csv.gz": "csv", "pkl": "pickle"}.get(kind, kind)
    options = {"index": False} if name in ("csv", "parquet") else {}
    getattr(frame, f"to_{name}")(url, storage_options=place.options, **options)
    found = getattr(pd, f"read_{name}")(url, storage_options=place.options)
    pd.testing.assert_frame_equal(found, frame)


def test_a_frame_that_pandas_cannot_write_leaves_nothing(place: Place) -> None:
    pd = pytest.importorskip("pandas")

    class NoText:
        def __str__(self) -> str:
            raise RuntimeError("no text")

    frame = pd.DataFrame({"a": [1] * 100 + [NoText()]})
    with pytest.raises(RuntimeError, match="no text"):
        frame.to_csv(f"{place.url}/a.csv", storage_options=place.options)
    assert not place.fs.exists(place.at("a.csv"))


def test_a_frame_whose_compression_pandas_lacks_leaves_what_was_there(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    pd = pytest.importorskip("pandas")
    place.fs.pipe_file(place.at("a.csv"), b"before")
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(ImportError):
        pd.DataFrame({"a": [1]}).to_csv(
            f"{place.url}/a.csv", compression="zstd", storage_options=place.options
        )
    assert place.fs.cat_file(place.at("a.csv")) == b"before"


# ---- pyarrow


def test_pyarrow_writes_and_filters_a_partitioned_dataset(place: Place) -> None:
    import pyarrow as pa
    import pyarrow.dataset as ds

    whole = pa.table({"part": [i % 3 for i in range(300)], "x": list(range(300))})
    ds.write_dataset(
        whole, place.at("set"), filesystem=place.fs, format="parquet", partitioning=["part"]
    )
    found = ds.dataset(place.at("set"), filesystem=place.fs, partitioning=["part"])
    assert len(found.files) == 3
    assert found.count_rows() == 300
    rows = found.to_table(filter=ds.field("part") == 1, columns=["x"])
    assert sorted(rows["x"].to_pylist()) == list(range(1, 300, 3))


def test_pyarrow_reads_and_writes_single_files(place: Place) -> None:
    from pyarrow import csv, fs, parquet

    written = table()
    parquet.write_table(written, place.at("a.parquet"), filesystem=place.fs, row_group_size=100)
    assert parquet.read_table(place.at("a.parquet"), filesystem=place.fs).equals(written)
    with parquet.ParquetFile(place.fs.open(place.at("a.parquet"))) as file:
        assert file.num_row_groups == 10
        assert file.read_row_group(3, ["c1"]).equals(written.select(["c1"])[300:400])
    arrow = fs.PyFileSystem(fs.FSSpecHandler(place.fs))
    with arrow.open_output_stream(place.at("a.csv")) as out:
        csv.write_csv(written, out)
    with arrow.open_input_stream(place.at("a.csv")) as file:
        assert csv.read_csv(file).num_rows == 1000
    with pytest.raises(FileNotFoundError):
        parquet.read_table(place.at("missing.parquet"), filesystem=place.fs)
    info = arrow.get_file_info(fs.FileSelector(place.path))
    assert sorted(each.base_name for each in info) == ["a.csv", "a.parquet"]
    arrow.delete_file(place.at("a.csv"))
    arrow.copy_file(place.at("a.parquet"), place.at("b.parquet"))
    arrow.move(place.at("b.parquet"), place.at("c.parquet"))
    assert place.fs.ls(place.path, detail=False) == [
        place.at("a.parquet"), place.at("c.parquet")
    ]  # fmt: skip


def test_a_column_of_several_files_is_read_by_one_batch(
    counted: Place, server: FaultServer
) -> None:
    from fsspec.parquet import open_parquet_files
    from pyarrow import parquet

    written = table(rows=40_000, columns=8)
    out = io.BytesIO()
    parquet.write_table(
        written, out, row_group_size=10_000, compression="none", use_dictionary=False
    )
    for i in range(3):
        server.put(counted.path, f"{i}.parquet", out.getvalue())
    paths = [counted.at(f"{i}.parquet") for i in range(3)]
    begin = len(server.log())
    files = open_parquet_files(
        paths, fs=counted.fs, columns=["c3"], engine="pyarrow", footer_sample_size=65_536
    )
    for file in files:
        assert parquet.ParquetFile(file).read(["c3"]).equals(written.select(["c3"]))
    log = server.log()[begin:]
    # The sizes; the footers, which fsspec reads again; and each column chunk.
    assert sorted(entry["kind"] for entry in log) == ["get"] * 3 + ["media"] * (3 * 2 + 3 * 4)
    assert sum(entry["bytes_sent"] for entry in log if entry["kind"] == "media") < (
        1.1 * 3 * (2 * 65_536 + 40_000 * 8)
    )


# ---- Hugging Face datasets


def test_datasets_stream_offline(place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
                                 ) -> None:  # fmt: skip
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    datasets = pytest.importorskip("datasets")
    from pyarrow import parquet

    for i in range(2):
        rows = table(rows=50 + i)
        parquet.write_table(rows, place.at(f"data/{i}.parquet"), filesystem=place.fs)
    place.fs.pipe_file(place.at("a.jsonl"), b'{"x": 1}\n{"x": 2}\n')
    stream = datasets.load_dataset(
        "parquet",
        data_files={"train": f"{place.url}/data/*.parquet"},
        split="train",
        streaming=True,
        storage_options=place.options,
    )
    assert sum(1 for _ in stream) == 101
    lines = datasets.load_dataset(
        "json", data_files=f"{place.url}/a.jsonl", split="train", streaming=True,
        storage_options=place.options,
    )  # fmt: skip
    assert [row["x"] for row in lines] == [1, 2]
    # And what datasets itself saves.
    made = datasets.Dataset.from_dict({"x": list(range(10))})
    made.save_to_disk(f"{place.url}/saved", storage_options=place.options)
    again = datasets.load_from_disk(f"{place.url}/saved", storage_options=place.options)
    assert again["x"][:] == list(range(10))


# ---- zarr, h5py


def test_zarr_reads_and_writes_arrays(place: Place) -> None:
    zarr = pytest.importorskip("zarr")
    data = np.random.default_rng(3).random((40, 30))
    group = zarr.open_group(f"{place.url}/group.zarr", mode="w", storage_options=place.options)
    array = group.create_array("a", shape=data.shape, chunks=(10, 10), dtype=data.dtype)
    array[:] = data
    group.attrs["note"] = "text"
    again = zarr.open_group(f"{place.url}/group.zarr", mode="r", storage_options=place.options)
    np.testing.assert_array_equal(again["a"][:], data)
    np.testing.assert_array_equal(again["a"][15:25, 5], data[15:25, 5])
    assert again.attrs["note"] == "text"
    assert sorted(again.array_keys()) == ["a"]
    # A file system that was made for synchronous use, and a sharded array, which reads ranges.
    store = zarr.storage.FsspecStore.from_mapper(place.fs.get_mapper(place.at("s.zarr")))
    sharded = zarr.create_array(
        store, shape=data.shape, shards=(20, 30), chunks=(10, 10), dtype=data.dtype
    )
    sharded[:] = data
    np.testing.assert_array_equal(sharded[5:12, 5:25], data[5:12, 5:25])


def test_h5py_reads_by_few_requests(counted: Place, server: FaultServer) -> None:
    h5py = pytest.importorskip("h5py")
    data = np.random.default_rng(3).random((200, 1000))
    out = io.BytesIO()
    with h5py.File(out, "w") as file:
        file.create_dataset("a", data=data, chunks=(20, 1000))
        for i in range(20):
            file.create_dataset(f"group/{i}", data=i)
    server.put(counted.path, "a.h5", out.getvalue())
    with counted.fs.open(counted.at("a.h5")) as opened, h5py.File(opened) as file:
        begin = len(server.log())
        np.testing.assert_array_equal(file["a"][40:60], data[40:60])
        assert [file[f"group/{i}"][()] for i in range(20)] == list(range(20))
        media = [entry for entry in server.log()[begin:] if entry["kind"] == "media"]
        assert len(media) <= 6


def test_h5py_writes_and_reads(place: Place) -> None:
    h5py = pytest.importorskip("h5py")
    with place.fs.open(place.at("a.h5"), "wb") as out:
        made = io.BytesIO()
        with h5py.File(made, "w") as file:
            file["a"] = np.arange(1000)
        out.write(made.getbuffer())
    with place.fs.open(place.at("a.h5")) as opened, h5py.File(opened) as file:
        np.testing.assert_array_equal(file["a"][:], np.arange(1000))


# ---- torch


def test_torch_saves_and_loads_checkpoints(place: Place) -> None:
    torch = pytest.importorskip("torch")
    state = {"weight": torch.arange(100_000.0), "step": 3}
    with fsspec.open(f"{place.url}/a.pt", "wb", **place.options) as file:
        torch.save(state, file)
    with fsspec.open(f"{place.url}/a.pt", "rb", **place.options) as file:
        found = torch.load(file)
    assert torch.equal(found["weight"], state["weight"])
    assert found["step"] == 3


@pytest.mark.filterwarnings("ignore:torch.distributed is (disabled|unavailable):UserWarning")
@pytest.mark.filterwarnings("ignore:Detected an existing checkpoint:UserWarning")
def test_torch_saves_and_loads_distributed_checkpoints(place: Place) -> None:
    torch = pytest.importorskip("torch")
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint._fsspec_filesystem import FsspecReader, FsspecWriter

    saved = {"layer": {"weight": torch.arange(100_000.0), "bias": torch.ones(7)}, "step": 3}
    url = f"{place.url}/step1"
    for number in (1, 2):
        saved["step"] = number
        dcp.save(
            saved, storage_writer=FsspecWriter(url, sync_files=False, **place.options), no_dist=True
        )
    loaded = {"layer": {"weight": torch.zeros(100_000), "bias": torch.zeros(7)}, "step": 0}
    dcp.load(loaded, storage_reader=FsspecReader(url, **place.options), no_dist=True)
    assert torch.equal(loaded["layer"]["weight"], saved["layer"]["weight"])
    assert loaded["step"] == 2
    names = {path.rpartition("/")[2] for path in place.fs.find(place.at("step1"))}
    assert names == {".metadata", "__0_0.distcp"}
    # All of it is moved, counted and removed, what is hidden, too.
    size_bytes = place.fs.du(place.at("step1"))
    place.fs.mv(place.at("step1"), place.at("best"), recursive=True)
    assert not place.fs.exists(place.at("step1"))
    assert place.fs.du(place.at("best")) == size_bytes
    dcp.load(
        loaded, storage_reader=FsspecReader(f"{place.url}/best", **place.options), no_dist=True
    )
    place.fs.rm(place.at("best"), recursive=True)
    assert place.fs.find(place.at("best")) == []


def test_a_plain_gs_url_is_served_when_asked(server: FaultServer, run_child: Any) -> None:
    server.bucket("bucket")
    script = """
    import fsspec, headrace.fsspec
    headrace.fsspec.register(override=True)
    with fsspec.open("gs://bucket/a", "wb") as file:
        file.write(b"bytes")
    assert isinstance(fsspec.filesystem("gs"), headrace.fsspec.GcsFileSystem)
    """
    run_child(script, STORAGE_EMULATOR_HOST=server.url)
    assert server.get("bucket", "a") == b"bytes"
