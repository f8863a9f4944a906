"""What is no checkpoint, or none that may be loaded: what the error says."""

from __future__ import annotations

import collections
import copyreg
import gzip
import io
import os
import pickle
import re
import struct
import subprocess
import sys
import tempfile
import tracemalloc
import uuid
import warnings
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

import headrace
import headrace.checkpoint
from headrace import CorruptDataError, InvalidArgumentError, NotFoundError
from testing.faultserver.client import FaultServer
from testing.servers import FakeGcsServer
from tests.checkpoint.states import (
    assert_same,
    file_of,
    large_state,
    load,
    quiet,
    stock_file_of,
)


class Unsafe:
    """A class that nobody allowed."""


class Changed:
    """A class that does not read what it wrote."""

    def __getstate__(self) -> int:
        return 1

    def __setstate__(self, _: int) -> None:
        raise AttributeError("an older version")


def _torchscript() -> bytes:
    out = io.BytesIO()
    with warnings.catch_warnings(action="ignore"):
        torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), out)
    return out.getvalue()


def _zip_of(name: str, data: bytes, method: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        archive.writestr(name, data)
    return out.getvalue()


REFUSED: dict[str, tuple[Any, str]] = {
    "empty": (b"", "it is empty"),
    "text": (b"hello" * 100, "does not begin as a zip does"),
    "torchscript": (_torchscript, "torch.jit.load"),
    "gzip": (lambda: gzip.compress(file_of([1])), "compressed by gzip"),
    "other zip": (lambda: _zip_of("a/b.txt", b"x"), "it has no data.pkl"),
    "empty zip": (lambda: _zip_of("a", b"")[-22:], "does not begin as a zip does"),
    "compressed zip": (
        lambda: _zip_of("a/data.pkl", b"x" * 100, zipfile.ZIP_DEFLATED),
        "is compressed",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_checkpoint_is_refused_by_what_it_is(name: str, store: headrace.Store) -> None:
    data, message = REFUSED[name]
    store.write("a.pt", data if isinstance(data, bytes) else data())
    with pytest.raises(InvalidArgumentError, match=message) as raised:
        load(store)
    assert raised.value.url == store.url_of("a.pt")
    with pytest.raises(InvalidArgumentError, match=message):
        headrace.checkpoint.open("a.pt", store=store)


def test_the_format_before_zip_is_loaded_and_not_opened(store: headrace.Store) -> None:
    state = {"a": torch.arange(1000.0), "b": [torch.ones(3), 5]}
    store.write("a.pt", stock_file_of(state, _use_new_zipfile_serialization=False))
    assert_same(load(store), state)
    with pytest.raises(InvalidArgumentError, match=r"before version 1\.6.*checkpoint\.load"):
        headrace.checkpoint.open("a.pt", store=store)
    store.write("b.pt", stock_file_of([Unsafe()], _use_new_zipfile_serialization=False))
    with pytest.raises(InvalidArgumentError, match=r"b\.pt: weights_only=True refuses"):
        load(store, "b.pt")


@pytest.mark.parametrize("write", [file_of, stock_file_of], ids=["ours", "stock"])
@pytest.mark.parametrize("more_bytes", [-40, -4, -1, 1, 64])
def test_a_record_of_another_size_than_its_tensor_is_corrupt_however_it_is_read(
    more_bytes: int, write: Any, store: headrace.Store
) -> None:
    written, out = write({"model": {"w": torch.arange(10.0)}, "e": torch.ones(3)}), io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(written)) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name.endswith("data/0"):
                data = (data + bytes(64))[: len(data) + more_bytes]
            new.writestr(name, data)
    store.write("a.pt", out.getvalue())
    reader = headrace.checkpoint.open("a.pt", store=store)
    assert reader.keys() == ["model.w", "e"]
    reads: list[Any] = [
        lambda: load(store),
        lambda: reader.info("model.w"),
        lambda: reader.tensor("model.w"),
        lambda: reader.slice("model.w", slice(0, 1)),
    ]
    for read in reads:
        wrong = rf"a\.pt: the record data/0 of 'model\.w' has {40 + more_bytes} bytes, .* 40$"
        with pytest.raises(CorruptDataError, match=wrong):
            read()
    assert_same(reader.tensor("e"), torch.ones(3))
    assert headrace.checkpoint.latest("", store=store) is None


def test_a_missing_checkpoint_is_not_found(store: headrace.Store) -> None:
    with pytest.raises(NotFoundError, match=r"a\.pt"):
        load(store)


def test_a_url_without_an_object_is_refused() -> None:
    for url in ("gs://bucket", "gs://bucket/", ""):
        with pytest.raises(InvalidArgumentError, match=r"not an object|is empty"):
            headrace.checkpoint.load(url)


def test_weights_only_says_what_it_refuses_and_what_to_do(store: headrace.Store) -> None:
    store.write("a.pt", file_of({"x": Unsafe(), "t": torch.ones(3)}))
    with pytest.raises(InvalidArgumentError, match=r"Unsafe.*weights_only=False.*add_safe_globals"):
        load(store)
    assert load(store, weights_only=False)["t"].tolist() == [1, 1, 1]
    with torch.serialization.safe_globals([Unsafe]):
        assert isinstance(load(store)["x"], Unsafe)


def test_weights_only_refuses_before_the_storages_are_read(
    server: Any, gcs: headrace.Store
) -> None:
    server.put("bucket", "a.pt", file_of({"x": Unsafe(), "t": torch.zeros(1 << 20)}))
    with pytest.raises(InvalidArgumentError, match="Unsafe"):
        load(gcs)
    assert sum(each["kind"] == "media" for each in server.log()) == 2


def test_opening_executes_nothing(tmp_path: Path) -> None:
    class Shouts:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "executed",)

    store = headrace.Store(tmp_path)
    store.write("a.pt", file_of({"x": Shouts(), "t": torch.arange(3)}))
    with quiet():
        reader = headrace.checkpoint.open("a.pt", store=store)
    assert reader.tensor("t").tolist() == [0, 1, 2]
    with pytest.raises(InvalidArgumentError):
        load(store)
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("pickled", [b"", b"\x80\x02", b"\x80\x02}q\x00", b"garbage", b"\xff" * 50])
def test_a_pickle_that_cannot_be_read_is_corrupt(pickled: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.pt").write_bytes(_zip_of("archive/data.pkl", pickled))
    with pytest.raises(CorruptDataError, match=r"a\.pt: its pickle cannot be read"):
        load(headrace.Store(tmp_path), weights_only=False)


# What is a checkpoint by all but its pickle. Each of these once did harm outside of itself.
_ORDERED = b"\x80\x02ccollections\nOrderedDict\n"
_NOTHING = pickle.dumps(None, 2)[2:-1]


def _short(text: str) -> bytes:
    return b"X" + struct.pack("<I", len(text)) + text.encode()


@pytest.mark.parametrize("name", ["__setitem__", "items", "__init__"])
def test_a_pickle_that_changes_a_class_spoils_no_other_file(name: str, tmp_path: Path) -> None:
    store = headrace.Store(tmp_path)
    good = collections.OrderedDict(a=torch.ones(3))
    store.write("good.pt", file_of(good))
    evil = _ORDERED + b"(" + _NOTHING + b"}" + _short(name) + _NOTHING + b"stb0}."
    for each in ("a.pt", "z.pt"):
        store.write(each, _zip_of("archive/data.pkl", evil))
    os.utime(tmp_path / "good.pt", (100, 100))
    with pytest.raises(CorruptDataError, match=rf"a\.pt: its pickle.*{name}.* of a class"):
        load(store)
    with pytest.raises(CorruptDataError, match=rf"a\.pt: its pickle.*{name}.* of a class"):
        headrace.checkpoint.open("a.pt", store=store)
    assert_same(load(store, "good.pt"), good)
    assert headrace.checkpoint.open("good.pt", store=store).keys() == ["a"]
    assert headrace.checkpoint.latest("", store=store) == store.url_of("good.pt")


def test_an_attribute_does_not_take_the_place_of_a_function(tmp_path: Path) -> None:
    evil = _ORDERED + b")R}" + _short("items") + _NOTHING + b"sb."
    (tmp_path / "a.pt").write_bytes(_zip_of("archive/data.pkl", evil))
    assert headrace.checkpoint.open("a.pt", store=headrace.Store(tmp_path)).keys() == []


def test_a_pickle_that_changes_a_storage_is_corrupt(tmp_path: Path) -> None:
    storage = b"(" + b"".join(map(_short, ("storage",))) + b"ctorch\nFloatStorage\n"
    storage += _short("0") + _short("cpu") + b"K\x01tQ"
    evil = b"\x80\x02" + storage + b"}" + _short("location") + b"]sb."
    (tmp_path / "a.pt").write_bytes(_zip_of("archive/data.pkl", evil))
    with pytest.raises(CorruptDataError, match="changes a storage"):
        load(headrace.Store(tmp_path))


@pytest.mark.parametrize(
    "pickled",
    [
        b"\x80\x02}r" + struct.pack("<I", 200_000_000) + b".",  # a place in the memo
        b"\x80\x05\x96" + struct.pack("<Q", 1 << 31) + b"x.",  # a bytearray
    ],
    ids=["memo", "bytearray"],
)
def test_numbers_in_a_pickle_reserve_no_memory(pickled: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.pt").write_bytes(_zip_of("archive/data.pkl", pickled))
    script = f"""
import resource
import headrace.checkpoint
from headrace._base.errors import CorruptDataError

before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    headrace.checkpoint.load({str(tmp_path / "a.pt")!r})
except CorruptDataError:
    pass
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb)
"""
    grown_kb = int(subprocess.check_output([sys.executable, "-c", script], text=True))
    assert grown_kb < 200 << 10


def test_a_bytearray_is_read(tmp_path: Path) -> None:
    store = headrace.Store(tmp_path)
    state = {"b": bytearray(b"abc"), "t": torch.ones(2)}
    headrace.checkpoint.save(state, "a.pt", store=store, pickle_protocol=5)
    assert load(store, weights_only=False)["b"] == bytearray(b"abc")
    assert headrace.checkpoint.open("a.pt", store=store).keys() == ["t"]


def test_a_registered_extension_is_not_called(tmp_path: Path) -> None:
    called = []
    copyreg.add_extension(__name__, "_extension", 77)
    copyreg._extension_cache[77] = called.append  # type: ignore[attr-defined]
    try:
        pickled = b"\x80\x02\x82\x4d" + b"K\x01\x85R."
        (tmp_path / "a.pt").write_bytes(_zip_of("archive/data.pkl", pickled))
        assert headrace.checkpoint.open("a.pt", store=headrace.Store(tmp_path)).keys() == []
    finally:
        copyreg.remove_extension(__name__, "_extension", 77)
        copyreg.clear_extension_cache()
    assert called == []


def _nested(levels: int, key: str) -> bytes:
    """Return the pickle of that many dictionaries in each other, each with a tensor besides."""
    tensor = (
        b"ctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\nFloatStorage\n"
        + _short("0")
        + _short("cpu")
        + b"K\x00tQK\x00K\x00\x85K\x01\x85\x89}tR"
    )
    begin = b"\x80\x02" + _short(key) + b"q\x000"
    return begin + b"}h\x00" * levels + b"}" + (b"s" + _short("t") + tensor + b"s") * levels + b"."


def test_the_places_of_nested_dictionaries_are_no_larger_than_the_file(tmp_path: Path) -> None:
    data = _zip_of("archive/data.pkl", _nested(3000, "k" * 1000))
    (tmp_path / "a.pt").write_bytes(data)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidArgumentError, match=r"a\.pt: the place.*1024.*checkpoint\.load"):
            headrace.checkpoint.open(tmp_path / "a.pt")
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 100 << 20


_FUNCTION = b"cm\nf\nq\1"
_THINGS = b"(" + b"N" * 5_000
_OFTEN = {
    "arguments": _FUNCTION + _THINGS + b"tq\2]" + b"h\1h\2Ra" * 5_000,
    "arguments in a list": _FUNCTION + _THINGS + b"lq\2]" + b"h\1h\2Ra" * 5_000,
    "arguments by name": _FUNCTION + _THINGS + b"dq\2]" + b"h\1)h\2\x92a" * 5_000,
    "of a class": b"ccopyreg\n__newobj__\nq\1" + _THINGS + b"tq\2]" + b"h\1h\2Ra" * 5_000,
    "pairs": b"ccollections\nOrderedDict\nq\1("
    + b"NN\x86" * 4000
    + b"l\x85q\2]"
    + b"h\1h\2Ra" * 4000,
    "state": b"cm\nf\n)R" + _THINGS + b"tq\1" + b"h\1b" * 5_000,
    "of a function that is dropped": b"cm\nf\n)R0"
    + _FUNCTION
    + b"(h\1)R"
    + _THINGS[1:]
    + b"tq\2]"
    + b"h\1h\2R0" * 5_000,
    "names": b"cm\n" + b"f" * 5_000 + b"\nq\1]" + b"h\1N\x85Ra" * 5_000,
    "a class in a class": b"c__builtin__\ngetattr\nq\1cm\nf\n"
    + _short("n" * 5_000)
    + b"q\x020q\3]"
    + b"h\1h\3h\2\x86Rq\3a" * 5_000,
}


@pytest.mark.parametrize("name", _OFTEN)
def test_a_call_that_a_pickle_repeats_takes_no_more_memory_each_time(
    name: str, tmp_path: Path
) -> None:
    (tmp_path / "a.pt").write_bytes(_zip_of("archive/data.pkl", b"\x80\x04" + _OFTEN[name] + b"."))
    tracemalloc.start()
    try:
        assert headrace.checkpoint.open(tmp_path / "a.pt").keys() == []
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 50 << 20


@pytest.mark.parametrize("name", ["long", "tuple", "number"])
def test_a_key_that_cannot_be_written_is_refused(name: str, tmp_path: Path) -> None:
    key: Any = {"long": "k" * 1025, "tuple": tuple(["x" * 200] * 10), "number": 10**5000}[name]
    store = headrace.Store(tmp_path)
    state = {key: torch.ones(2)}
    store.write("a.pt", stock_file_of(state))
    with pytest.raises(InvalidArgumentError, match=r"the place of a tensor.*checkpoint\.load"):
        headrace.checkpoint.open("a.pt", store=store)
    assert list(load(store, weights_only=False)) == [key]


@pytest.mark.parametrize("key", ["k" * 1024, ("a", 1), (1, ("b",)), -5, 2.5, None, True])
def test_any_other_key_is_written_as_it_is(key: Any, tmp_path: Path) -> None:
    store = headrace.Store(tmp_path)
    store.write("a.pt", stock_file_of({key: torch.ones(2)}))
    assert headrace.checkpoint.open("a.pt", store=store).keys() == [str(key)]


def test_opening_ends_where_a_list_is_in_itself(tmp_path: Path) -> None:
    evil = b"\x80\x02ctorch._utils\n_rebuild_x\n]q\x00h\x00a\x85R."
    (tmp_path / "a.pt").write_bytes(_zip_of("archive/data.pkl", evil))
    assert headrace.checkpoint.open(tmp_path / "a.pt").keys() == [""]


_NO_SENSE = {
    "call without arguments": b"ctorch._utils\n_rebuild_tensor_v2\n)R.",
    "list of one argument": _ORDERED[2:] + b"K\x05\x85R.",
    "state of another kind": _ORDERED[2:] + b")RK\x05b.",
    "item of a number": b"K\x01K\x02K\x03s.",
    "key that cannot be one": b"}]K\x01s.",
}


@pytest.mark.parametrize("name", _NO_SENSE)
def test_a_pickle_that_makes_no_sense_is_corrupt(name: str, tmp_path: Path) -> None:
    (tmp_path / "a.pt").write_bytes(_zip_of("archive/data.pkl", b"\x80\x02" + _NO_SENSE[name]))
    with pytest.raises(CorruptDataError, match=r"a\.pt: its pickle cannot be read"):
        load(headrace.Store(tmp_path))


@pytest.mark.parametrize("option", ["map_location", "progress"])
def test_the_error_of_a_users_function_is_raised_as_it_is(option: str, tmp_path: Path) -> None:
    def fails(*_: Any) -> None:
        raise TypeError("mine")

    store = headrace.Store(tmp_path)
    store.write("a.pt", file_of([torch.ones(2)]))
    with pytest.raises(TypeError, match="mine"):
        load(store, **{option: fails})


def test_the_error_of_a_class_is_raised_as_it_is_and_names_the_object(tmp_path: Path) -> None:
    store = headrace.Store(tmp_path)
    store.write("a.pt", file_of(Changed()))
    with pytest.raises(AttributeError, match="an older version") as raised:
        load(store, weights_only=False)
    assert raised.value.__notes__ == [f"This was raised while {store.url_of('a.pt')} was loaded."]


def test_a_missing_record_is_corrupt(tmp_path: Path) -> None:
    data = file_of([torch.ones(2)])
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        pickled = archive.read("archive/data.pkl")
    (tmp_path / "a.pt").write_bytes(_zip_of("archive/data.pkl", pickled))
    with pytest.raises(CorruptDataError, match="the record data/0 is missing"):
        load(headrace.Store(tmp_path))


def test_a_file_that_another_tool_packed_again_is_loaded(tmp_path: Path) -> None:
    state = {"a": torch.arange(1000.0), "b": torch.ones(3)}
    out = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(stock_file_of(state))) as old,
        zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as new,
    ):
        for each in old.infolist():
            new.writestr(each.filename, old.read(each))
    # No padding: where contents begin is known to their headers alone.
    (tmp_path / "a.pt").write_bytes(out.getvalue())
    found = load(headrace.Store(tmp_path))
    assert torch.equal(found["a"], state["a"])
    assert torch.equal(found["b"], state["b"])


def test_progress_without_tqdm_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "tqdm.auto", None)
    store = headrace.Store(tmp_path)
    store.write("a.pt", file_of([torch.ones(2)]))
    with pytest.raises(InvalidArgumentError, match="tqdm"):
        load(store, progress=True)


KEPT = {
    "status": 403,
    "reason": "retentionPolicyNotMet",
    "message": "Object 'bucket/x' is subject to bucket's retention policy.",
}


@pytest.mark.parametrize("size_bytes", [100, 20 << 20], ids=["one part", "many parts"])
@pytest.mark.parametrize("reason", ["forbidden", "retentionPolicyNotMet"])
def test_what_may_not_be_overwritten_stays_and_is_named(
    server: FaultServer, gcs: headrace.Store, size_bytes: int, reason: str
) -> None:
    headrace.checkpoint.save({"step": 1}, "a.pt", store=gcs)
    is_large = size_bytes > 16 << 20
    refusal = KEPT | {"reason": reason}
    rule = {"match": {"kind": "compose" if is_large else "upload"}, "action": refusal}
    server.faults([rule])
    with pytest.raises(headrace.PermissionDeniedError, match=r"gs://bucket/a\.pt: .*") as raised:
        headrace.checkpoint.save(torch.zeros(size_bytes, dtype=torch.uint8), "a.pt", store=gcs)
    assert raised.value.url == "gs://bucket/a.pt"
    assert ("write to another name" in str(raised.value)) == (reason != "forbidden")
    server.faults([])
    assert load(gcs) == {"step": 1}
    assert server.names("bucket") == ["a.pt"]


def test_what_may_not_be_deleted_is_named_without_advice_for_writers(
    server: FaultServer, gcs: headrace.Store
) -> None:
    gcs.write("a.pt", b"kept")
    server.faults([{"match": {"kind": "delete"}, "action": KEPT}])
    with pytest.raises(headrace.PermissionDeniedError) as raised:
        gcs.delete("a.pt")
    assert "can be neither replaced nor deleted" in str(raised.value)
    assert "another name" not in str(raised.value)


@pytest.mark.parametrize("map_location", [5, ["cpu"], b"cpu"])
def test_a_map_location_of_another_type_is_not_told_as_damage(map_location: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"map_location is .*; it must be a device"):
        headrace.checkpoint.load("/no/such/file", map_location)


def test_a_name_of_a_directory_is_refused(store: headrace.Store, tmp_path: Path) -> None:
    for operation in (
        lambda url, **more: headrace.checkpoint.save({}, url, **more),
        headrace.checkpoint.load,
        headrace.checkpoint.open,
    ):
        with pytest.raises(
            InvalidArgumentError, match=r"^run/ names a (directory|bucket or a folder)"
        ):
            operation("run/", store=store)
        with pytest.raises(InvalidArgumentError, match=r"/run/ names a directory"):
            operation(f"{tmp_path}/run/")
    assert list(store.list()) == []


@pytest.mark.parametrize("read", [headrace.checkpoint.load, headrace.checkpoint.open])
def test_a_folder_of_torch_distributed_is_named(
    read: Any, server: FaultServer, store: headrace.Store
) -> None:
    store.write("run/step1/__0_0.distcp", b"data")
    with pytest.raises(NotFoundError):  # not complete, so no checkpoint yet
        read("run/step1", store=store)
    store.write("run/step1/.metadata", b"metadata")
    with pytest.raises(
        InvalidArgumentError, match=r"run/step1: it is a folder of .*DistributedReader"
    ) as raised:
        read("run/step1", store=store)
    assert raised.value.url == store.url_of("run/step1")


def test_temporaries_that_a_retention_policy_keeps_are_a_warning_and_no_error(
    server: FaultServer, gcs: headrace.Store, caplog: pytest.LogCaptureFixture
) -> None:
    state = large_state()
    server.faults([{"match": {"kind": "delete"}, "action": KEPT}])
    saved = headrace.checkpoint.save(state, "a.pt", store=gcs)
    (told,) = caplog.messages
    assert re.search(
        r"gs://bucket/a\.pt: 3 temporary objects below headrace-uploads/.* could not be removed"
        r".*headrace clean.*upload='resumable'",
        told,
    )
    assert saved == gcs.stat("a.pt")
    assert_same(load(gcs), state)
    headrace.checkpoint.save(state, "b.pt", store=gcs, upload="resumable")
    assert caplog.messages == [told]
    assert_same(load(gcs, "b.pt"), state)
    assert len(list(gcs.list("headrace-uploads/"))) == 3


def test_a_bucket_that_keeps_old_versions_shows_the_checkpoint_alone(
    fake_gcs: FakeGcsServer,
) -> None:
    bucket = f"versions-{uuid.uuid4().hex}"
    fake_gcs.make_bucket(bucket, versioning=True)
    store = headrace.Store(f"gs://{bucket}", endpoint=fake_gcs.url)
    first = headrace.checkpoint.save({"step": 1}, "a.pt", store=store)
    second = headrace.checkpoint.save(large_state(), "a.pt", store=store)
    assert first.generation != second.generation
    assert_same(load(store), large_state())
    assert [info.name for info in store.list("")] == ["a.pt"]
    assert list(store.list("headrace-uploads/")) == []
    assert headrace.checkpoint.latest("", store=store) == f"gs://{bucket}/a.pt"


def test_a_full_disk_is_told_and_keeps_what_was_there(tmp_path: Path) -> None:
    script = """
import resource, signal, sys
import torch
import headrace
url = sys.argv[1] + "/a.pt"
headrace.checkpoint.save({"step": 1}, url)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
try:
    headrace.checkpoint.save({"w": torch.zeros(10 << 20)}, url)
except headrace.ResourceError as error:
    print(error.url, error)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, timeout=200
    )
    told = f"file://{tmp_path}/a.pt"
    assert done.stdout.startswith(f"{told} {told}: too large for this file system"), done.stderr
    assert os.listdir(tmp_path) == ["a.pt"]
    assert headrace.checkpoint.load(tmp_path / "a.pt") == {"step": 1}


def test_a_folder_that_may_not_be_written_is_told_and_keeps_what_was_there() -> None:
    script = """
import os, sys
import torch
import headrace
url = sys.argv[1] + "/a.pt"
headrace.checkpoint.save({"step": 1}, url)
os.chmod(sys.argv[1], 0o555)
if os.geteuid() == 0:
    os.setresuid(65534, 65534, 65534)
try:
    headrace.checkpoint.save({"step": 2}, url)
except headrace.PermissionDeniedError as error:
    print(error.url, error)
print(headrace.checkpoint.load(url))
"""
    with tempfile.TemporaryDirectory(prefix="headrace-") as folder:
        done = subprocess.run(
            [sys.executable, "-c", script, folder], capture_output=True, text=True, timeout=200
        )
        told = f"file://{folder}/a.pt"
        assert done.stdout.startswith(f"{told} {told}: may not be written"), done.stderr
        assert done.stdout.endswith("{'step': 1}\n")
        assert os.listdir(folder) == ["a.pt"]
        os.chmod(folder, 0o755)


@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_header_that_puts_a_record_elsewhere_is_damage(tmp_path: Path, at: int) -> None:
    """In the file of another zip writer only local headers say where contents begin."""
    out = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(stock_file_of(large_state(3, 1 << 20)))) as old,
        zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as new,
    ):
        for info in old.infolist():
            new.writestr(zipfile.ZipInfo(info.filename), old.read(info))
        record = [info for info in new.infolist() if "/data/" in info.filename][at]
    data = bytearray(out.getvalue())
    struct.pack_into("<H", data, record.header_offset + 28, 65535)  # the length of a field
    (tmp_path / "a.pt").write_bytes(data)
    name = record.filename
    with pytest.raises(CorruptDataError, match=rf"a\.pt: .*header of the record {name} is damaged"):
        load(headrace.Store(tmp_path))
