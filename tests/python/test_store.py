"""`Store`: listing, asking, reading, writing, on every store."""

from __future__ import annotations

import datetime
import pickle
import threading
from pathlib import Path
from typing import Any

import pytest

import headrace
from testing.faultserver.client import FaultServer
from testing.servers import FakeGcsServer


def put(store: headrace.Store, *names: str) -> None:
    for name in names:
        store.write(name, name.encode())


# ---- listing and asking


def test_a_listing_is_in_order_and_has_everything(store: headrace.Store) -> None:
    put(store, "b", "a/2", "a/1", "a-b", "ä")
    assert [info.name for info in store.list()] == ["a-b", "a/1", "a/2", "b", "ä"]
    assert [info.size_bytes for info in store.list("a")] == [3, 3, 3]


def test_a_listing_is_narrowed(store: headrace.Store) -> None:
    put(store, "a", "b/1", "b/2", "c", "d")
    assert [info.name for info in store.list(start_offset="b/2", end_offset="d")] == ["b/2", "c"]
    assert [info.name for info in store.list(max_results=2)] == ["a", "b/1"]
    page = store.list_page(delimiter="/")
    assert [info.name for info in page.objects] == ["a", "c", "d"]
    assert (page.prefixes, page.next_page_token) == (["b/"], "")


def test_pages_follow_each_other(store: headrace.Store) -> None:
    put(store, "a", "b", "c")
    first = store.list_page(max_results=2)
    second = store.list_page(page_token=first.next_page_token)
    assert [info.name for info in first.objects + second.objects] == ["a", "b", "c"]


def test_an_object_is_described(store: headrace.Store) -> None:
    written = store.write("a", b"hello")
    info = store.stat("a")
    assert (info.name, info.size_bytes) == ("a", 5)
    assert info.generation == written.generation != ""
    assert info.updated.tzinfo == datetime.UTC
    age = datetime.datetime.now(datetime.UTC) - info.updated
    assert abs(age) < datetime.timedelta(days=1)
    assert "name='a'" in repr(info)


def test_infos_are_values(gcs: headrace.Store) -> None:
    info = gcs.write("a", b"hello", content_type="text/plain")
    again = pickle.loads(pickle.dumps(info))
    assert again == info
    assert hash(again) == hash(info)
    assert (info.crc32c, info.content_type) == (0x9A71BB4C, "text/plain")
    assert info != headrace.ObjectInfo("a", 5)
    assert info != "a"
    with pytest.raises(AttributeError):
        info.name = "b"  # type: ignore[misc]


def test_missing_objects(store: headrace.Store) -> None:
    put(store, "a")
    assert store.exists("a")
    assert not store.exists("b")
    assert store.stat("b", missing_ok=True) is None
    store.delete("b", missing_ok=True)
    for call in (store.stat, store.read, store.delete):
        with pytest.raises(headrace.NotFoundError) as caught:
            call("b")
        assert caught.value.url == store.url_of("b")


# ---- reading


def test_many_are_read_in_order(store: headrace.Store) -> None:
    names = [f"{i}" for i in range(100)]
    put(store, *names)
    infos = {info.name: info for info in store.list()}
    wanted = [infos[name] if i % 2 else name for i, name in enumerate(reversed(names))]
    samples = store.read_many(wanted)
    assert [sample.bytes().decode() for sample in samples] == names[::-1]
    assert store.read_many(iter(())) == []


def test_an_error_for_each_object(store: headrace.Store) -> None:
    put(store, "a", "c")
    samples = store.read_many(["a", "b", "c", "d"], on_error="return")
    kinds = [headrace.Sample, headrace.NotFoundError] * 2
    assert [type(sample) for sample in samples] == kinds
    with pytest.raises(headrace.NotFoundError) as caught:
        store.read_many(["a", "b", "c", "d"])
    assert caught.value.url == store.url_of("b")
    assert caught.value.__notes__ == ["1 other object of the 4 that were read together failed, too"]


@pytest.mark.parametrize(
    ("begin", "end", "expected"),
    [
        (None, None, b"0123456789"),
        (2, 5, b"234"),
        (7, None, b"789"),
        (None, 3, b"012"),
        (8, 99, b"89"),
    ],
)
def test_a_range_is_half_open(
    store: headrace.Store, begin: int | None, end: int | None, expected: bytes
) -> None:
    store.write("a", b"0123456789")
    assert store.read("a", begin=begin, end=end).bytes() == expected
    assert store.read(store.stat("a"), begin=begin, end=end).bytes() == expected


@pytest.mark.parametrize(("begin", "end"), [(-1, 2), (5, 2)])
def test_a_misplaced_range_is_refused(store: headrace.Store, begin: int, end: int) -> None:
    store.write("a", b"0123456789")
    with pytest.raises(headrace.InvalidArgumentError, match="a range begins at 0"):
        store.read("a", begin=begin, end=end)


def test_a_changed_object_is_noticed(store: headrace.Store) -> None:
    info = store.write("a", b"one")
    store.write("a", b"other")
    with pytest.raises(headrace.PreconditionFailedError) as caught:
        store.read(info)
    assert caught.value.url == store.url_of("a")


def test_large_objects_come_whole(store: headrace.Store) -> None:
    data = bytes(range(256)) * 4096 * 20  # 20 MiB: by parallel ranges
    info = store.write("large", data)
    assert store.read("large").bytes() == data
    assert store.read(info).bytes() == data


# ---- reading into the caller's memory


def test_bytes_go_into_the_callers_memory(store: headrace.Store) -> None:
    numpy, torch = pytest.importorskip("numpy"), pytest.importorskip("torch")
    store.write("a", b"hello")
    for buffer in (
        bytearray(5),
        numpy.zeros(5, numpy.uint8),
        torch.zeros(5, dtype=torch.uint8),
        torch.zeros(5, dtype=torch.int8),
    ):
        sample = store.read("a", into=buffer)
        assert bytes(buffer) == b"hello" == sample.bytes()
        memoryview(sample)[0] = ord("j")
        assert bytes(buffer) == b"jello"


def test_each_object_has_its_buffer(store: headrace.Store) -> None:
    put(store, "a", "bb", "ccc")
    buffers = [bytearray(3), bytearray(2), bytearray(1)]
    samples = store.read_many(["ccc", "bb", "a"], into=buffers)
    assert [bytes(b) for b in buffers] == [s.bytes() for s in samples] == [b"ccc", b"bb", b"a"]


@pytest.mark.parametrize("by_info", [False, True])
@pytest.mark.parametrize("size_bytes", [0, 4, 6])
def test_a_buffer_of_another_size_is_refused(
    store: headrace.Store, size_bytes: int, by_info: bool
) -> None:
    info = store.write("a", b"hello")
    with pytest.raises(headrace.InvalidArgumentError, match=r"5"):
        store.read(info if by_info else "a", into=bytearray(size_bytes))


def test_buffers_that_cannot_be_written_are_refused(store: headrace.Store) -> None:
    torch = pytest.importorskip("torch")
    store.write("a", b"hello")
    for buffer in (b"12345", memoryview(b"12345")):
        with pytest.raises((BufferError, ValueError)):
            store.read("a", into=buffer)
    with pytest.raises(TypeError):
        store.read("a", into="12345")  # type: ignore[arg-type]
    with pytest.raises(headrace.InvalidArgumentError, match="contiguous"):
        store.read("a", into=torch.zeros(10, dtype=torch.uint8)[::2])
    with pytest.raises(headrace.InvalidArgumentError, match="1 buffers for 2"):
        store.read_many(["a", "a"], into=[bytearray(5)])


def test_a_failed_read_lets_the_buffer_go(gcs: headrace.Store, server: FaultServer) -> None:
    gcs.write("a", bytes(100_000))
    impatient = headrace.Store(
        "gs://bucket", endpoint=server.url, timeout=headrace.TimeoutOptions(total_s=0.2)
    )
    server.faults([{"match": {"kind": "media"}, "action": {"stall_after_bytes": 1000}}])
    buffer = bytearray(100_000)
    with pytest.raises(headrace.TimedOutError) as caught:
        impatient.read("a", into=buffer)
    assert caught.value.url == "gs://bucket/a"
    del caught
    buffer.clear()  # raises BufferError while anybody holds it


# ---- writing


def test_a_write_takes_any_buffer(store: headrace.Store) -> None:
    numpy, torch = pytest.importorskip("numpy"), pytest.importorskip("torch")
    for data in (
        b"\x01\0\x02\0",
        bytearray(b"\x01\0\x02\0"),
        numpy.array([1, 2], "<i2"),
        torch.tensor([1, 2], dtype=torch.int16),
    ):
        store.write("a", data)
        assert store.read("a").bytes() == b"\x01\0\x02\0"
    for wrong in ("text", None, 7, [1, 2]):
        with pytest.raises(TypeError, match=f"a {type(wrong).__name__} is no buffer of bytes"):
            store.write("a", wrong)  # type: ignore[arg-type]


def test_a_write_may_have_a_condition(store: headrace.Store) -> None:
    first = store.write("a", b"one", if_generation="absent")
    with pytest.raises(headrace.PreconditionFailedError):
        store.write("a", b"two", if_generation="absent")
    second = store.write("a", b"second", if_generation=first.generation)
    for call in (
        lambda: store.write("a", b"three", if_generation=first.generation),
        lambda: store.delete("a", if_generation=first.generation),
        lambda: store.copy("a", "a", if_generation=first.generation),
    ):
        with pytest.raises(headrace.PreconditionFailedError):
            call()
    assert store.read(second).bytes() == b"second"
    store.delete("a", if_generation=second.generation)
    assert not store.exists("a")


def test_a_copy_is_another_object(store: headrace.Store) -> None:
    info = store.write("a", b"hello")
    assert store.copy("a", "b").name == "b"
    assert store.copy(info, "c/d").size_bytes == 5
    assert [sample.bytes() for sample in store.read_many(["b", "c/d"])] == [b"hello"] * 2
    with pytest.raises(headrace.NotFoundError):
        store.copy("none", "d")


# ---- being a value, and being shared


def test_a_store_pickles_as_its_configuration(store: headrace.Store) -> None:
    put(store, "a")
    again = pickle.loads(pickle.dumps(store))
    assert again.url == store.url
    assert again.read("a").bytes() == b"a"
    assert store.url in repr(again)


def test_threads_share_a_store(store: headrace.Store) -> None:
    names = [f"{i}" for i in range(20)]
    put(store, *names)
    results: list[list[bytes]] = []

    def read() -> None:
        results.append([sample.bytes() for sample in store.read_many(names)])

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [[name.encode() for name in names]] * 8


def test_a_store_works_after_shutdown(store: headrace.Store) -> None:
    put(store, "a")
    headrace.shutdown()
    assert store.read("a").bytes() == b"a"


# ---- bad input


@pytest.mark.parametrize("name", [b"a", 1, None])
def test_what_is_no_name_is_refused(store: headrace.Store, name: object) -> None:
    with pytest.raises(TypeError):
        store.read(name)  # type: ignore[arg-type]


def test_a_prefix_is_text_and_a_count_is_not_negative(store: headrace.Store) -> None:
    store.write("a", b"1")
    given: Any = None
    for ask in (store.list, store.list_page, store.index):
        with pytest.raises(TypeError, match="prefix is None; it must be a str"):
            list(ask(given))
    for wrong in (-1, True, 1.5):
        with pytest.raises(headrace.InvalidArgumentError, match="max_results is"):
            list(store.list(max_results=wrong))  # type: ignore[arg-type]
    assert list(store.list(max_results=0)) == []


def test_a_name_that_is_no_text_is_refused(store: headrace.Store) -> None:
    with pytest.raises(headrace.InvalidArgumentError, match="no Unicode"):
        store.read("\ud800")


def test_one_name_is_not_many(store: headrace.Store) -> None:
    with pytest.raises(TypeError, match="several names"):
        store.read_many("abc")


def test_an_empty_name_is_refused(store: headrace.Store) -> None:
    with pytest.raises(headrace.InvalidArgumentError):
        store.read("")


def test_paths_are_stores_too(tmp_path: Path) -> None:
    put(headrace.Store(tmp_path), "a")
    for url in (str(tmp_path), f"file://{tmp_path}"):
        assert headrace.Store(url).read("a").bytes() == b"a"


def test_an_error_counts_its_attempts(gcs: headrace.Store, server: FaultServer) -> None:
    put(gcs, "a")
    retrying = headrace.Store(
        "gs://bucket",
        endpoint=server.url,
        retry=headrace.RetryOptions(max_attempts=3, initial_backoff_s=0.001),
    )
    server.faults([{"match": {"kind": "media"}, "action": {"status": 503}}])
    with pytest.raises(headrace.HeadraceError) as caught:
        retrying.read("a")
    assert (caught.value.attempts, caught.value.http_status) == (3, 503)
    assert "gs://bucket/a" in str(caught.value)


def test_a_requester_pays_bucket_needs_a_project(server: FaultServer) -> None:
    server.bucket("paid", requester_pays=True)
    server.put("paid", "a", b"hello")
    with pytest.raises(headrace.InvalidArgumentError):
        headrace.Store("gs://paid", endpoint=server.url).read("a")
    store = headrace.Store(
        "gs://paid", endpoint=server.url, provider=headrace.GcsOptions(user_project="mine")
    )
    assert store.read("a").bytes() == b"hello"


def test_an_emulator_is_found_by_its_variable(
    fake_gcs: FakeGcsServer, gcs_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", fake_gcs.url.removeprefix("http://"))
    store = headrace.Store(f"gs://{gcs_bucket}")
    store.write("a", b"hello")
    assert store.read_many(store.list())[0].bytes() == b"hello"


def test_swapped_arguments_of_compose_are_told(gcs: headrace.Store) -> None:
    info = gcs.write("part", b"x")
    with pytest.raises(TypeError, match="the name of the new object must be a str"):
        gcs.compose("whole", [info])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="the sources must be ObjectInfo, not 'part'"):
        gcs.compose("part", "whole")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"the sources must be ObjectInfo, not \['part'\]"):
        gcs.compose(["part"], "whole")  # type: ignore[list-item]
