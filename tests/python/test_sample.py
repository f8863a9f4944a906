"""What a read gives: memory that the user owns."""

from __future__ import annotations

import gc
import json
import pickle

import hypothesis
import hypothesis.strategies as st
import pytest

import headrace


def test_a_sample_is_a_writable_buffer(store: headrace.Store) -> None:
    store.write("a", b"hello")
    sample = store.read("a")
    view = memoryview(sample)
    assert (view.readonly, view.format, view.ndim, view.nbytes) == (False, "B", 1, 5)
    view[0] = ord("j")
    assert sample.bytes() == b"jello"
    assert len(sample) == sample.size_bytes == 5


def test_a_sample_says_where_it_came_from(store: headrace.Store) -> None:
    info = store.write("dir/ä b", b"hello")
    for sample in store.read_many(["dir/ä b", info]):
        assert sample.url == store.url_of("dir/ä b")
        assert sample.generation == info.generation
        assert sample.url in repr(sample)
        assert "5 bytes" in repr(sample)


def test_a_view_outlives_its_sample_and_its_store(store: headrace.Store) -> None:
    store.write("a", b"hello" * 1000)
    view = memoryview(store.read("a"))
    del store
    gc.collect()
    headrace.shutdown()
    assert view.tobytes() == b"hello" * 1000


def test_numpy_and_tensor_share_the_memory(store: headrace.Store) -> None:
    numpy, torch = pytest.importorskip("numpy"), pytest.importorskip("torch")
    store.write("a", b"hello")
    sample = store.read("a")
    array, tensor = sample.numpy(), sample.tensor()
    assert (array.dtype, array.shape, array.flags.writeable) == (numpy.uint8, (5,), True)
    assert (tensor.dtype, tensor.shape) == (torch.uint8, (5,))
    array[0] = 1
    tensor[1] = 2
    assert sample.bytes() == b"\x01\x02llo"
    del sample
    gc.collect()
    assert tensor[0] == 1


def test_zero_bytes_are_a_sample_too(store: headrace.Store) -> None:
    torch = pytest.importorskip("torch")
    store.write("empty", b"")
    sample = store.read("empty")
    assert (len(sample), sample.bytes(), memoryview(sample).nbytes) == (0, b"", 0)
    assert sample.numpy().shape == (0,)
    assert (sample.tensor().shape, sample.tensor().dtype) == ((0,), torch.uint8)
    assert pickle.loads(pickle.dumps(sample)).bytes() == b""


@hypothesis.given(
    st.binary(max_size=2000), st.text(max_size=20), st.text("0123456789", max_size=30)
)
def test_samples_pickle_as_writable_copies(data: bytes, url: str, generation: str) -> None:
    sample = pickle.loads(pickle.dumps(headrace.Sample(data, url, generation)))
    assert (sample.bytes(), sample.url, sample.generation) == (data, url, generation)
    assert not memoryview(sample).readonly


def test_a_sample_of_a_read_pickles(store: headrace.Store) -> None:
    store.write("a", b"hello")
    sample = store.read("a")
    again = pickle.loads(pickle.dumps(sample))
    assert (again.bytes(), again.url, again.generation) == (
        b"hello",
        sample.url,
        sample.generation,
    )


def test_a_sample_needs_a_buffer() -> None:
    with pytest.raises(TypeError):
        headrace.Sample("text")  # type: ignore[arg-type]


def test_one_kept_sample_pins_no_batch(store: headrace.Store) -> None:
    size_bytes = 64 * headrace.KiB
    names = [f"{i}" for i in range(16)]
    for name in names:
        store.write(name, bytes(size_bytes))
    gc.collect()
    before = headrace.metrics().memory_live_bytes
    kept = store.read_many(names)[7]
    gc.collect()
    grown = headrace.metrics().memory_live_bytes - before
    assert len(kept) == size_bytes
    assert size_bytes <= grown < 2 * size_bytes


@hypothesis.given(st.text(), st.sampled_from(["utf-8", "utf-16", "utf-32-be"]))
def test_text_is_what_decode_gives(text: str, encoding: str) -> None:
    data = text.encode(encoding, "surrogatepass")
    sample = headrace.Sample(data)
    assert sample.text(encoding, "surrogatepass") == data.decode(encoding, "surrogatepass")


@hypothesis.given(st.recursive(st.none() | st.integers() | st.text(), st.lists))
def test_json_is_what_was_dumped(value: object) -> None:
    assert headrace.Sample(json.dumps(value).encode()).json() == value


def test_what_is_no_text_and_no_json_is_named() -> None:
    sample = headrace.Sample(b"\xff{", url="gs://bucket/a.json")
    with pytest.raises(UnicodeDecodeError) as of_text:
        sample.text()
    with pytest.raises(ValueError) as of_json:
        sample.json()
    assert of_text.value.__notes__ == of_json.value.__notes__ == ["in gs://bucket/a.json"]
    assert sample.text(errors="replace") == "\ufffd{"
    assert headrace.Sample(b"").text() == ""
    with pytest.raises(json.JSONDecodeError):
        headrace.Sample(b"").json()
    with pytest.raises(LookupError, match="no-such"):
        sample.text("no-such")
