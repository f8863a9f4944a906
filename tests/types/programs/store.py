"""Objects and files."""

from __future__ import annotations

from typing import Any, BinaryIO, Unpack, assert_type

import torch

import headrace
from headrace.types import StoreOptions, Url


def opened(url: Url, **options: Unpack[StoreOptions]) -> BinaryIO:
    return headrace.open(url, **options)


def in_mode(url: Url, mode: str) -> BinaryIO:
    return headrace.open(url, mode)


state: dict[str, Any] = {}
with headrace.open("gs://bucket/state.pt", "wb") as file:
    torch.save(state, file)
state = torch.load(headrace.open("gs://bucket/state.pt"))
store = headrace.Store("s3://bucket/folder/", timeout=headrace.TimeoutOptions(total_s=60))
store.write("tensor", torch.zeros(4))
store.write("bytes", b"bytes")
sample = store.read("tensor", into=torch.zeros(4))
assert_type(sample, headrace.Sample)
assert_type(sample.tensor(), torch.Tensor)
assert_type(sample.bytes(), bytes)
memoryview(sample)
names = [info.name for info in store.list("a/", delimiter="/")]
assert_type(names, list[str])
either = store.read_many(names, on_error="return")
assert_type(either, list[headrace.Sample | headrace.HeadraceError])
for batch in store.read_batches([names], prefetch_bytes=8 * headrace.MiB):
    assert_type(batch[0], headrace.Sample)
size_bytes: int = store.stat("a").size_bytes
assert_type(store.stat("a", missing_ok=True), headrace.ObjectInfo | None)
assert_type(store.list_page(), headrace.ListPage)
index = store.index("a/").filter(suffix=(".jpg", ".png"))[1:]
assert_type(index, headrace.ObjectIndex)
assert_type(index[-1], headrace.ObjectInfo)
index = headrace.ObjectIndex.load("a", endpoint="http://localhost:1").select(range(5))
store.write("a", b"hello", if_generation="absent")
assert_type(headrace.metrics().requests_total, int)
assert_type(store.read_many(index), list[headrace.Sample])
opened("file", verify="all")

headrace.open("gs://bucket/state.pt", "w", endpont="http://localhost")  # wrong
headrace.open("gs://bucket/state.pt", endpont="http://localhost")  # wrong
headrace.open("gs://bucket/state.pt", timeout=60)  # wrong
opened("file", verfy=False)  # wrong
store.write("text", "text")  # wrong
store.read("tensor").no_such_method()  # wrong
headrace.Store("gs://bucket", endpont="http://localhost")  # wrong
headrace.pack("gs://bucket/raw", "gs://bucket/shards", shrad_bytes=1)  # wrong
headrace.Store()  # wrong
headrace.Store("gs://bucket", on_change="ignore")  # wrong
headrace.RetryOptions(3)  # wrong
store.read(b"name")  # wrong
store.stat("a", missing_ok=True).size_bytes  # wrong
store.read_many(["a"], errors="ignore")  # wrong
store.read("a").size_bytes = 3  # wrong
store.index().select(["a"])  # wrong
store.index()[0] = 5  # wrong
headrace.ObjectIndex.from_objects(["a"])  # wrong
headrace.types.Nothing  # wrong
headrace.Stroe("gs://bucket")  # wrong
headrace.checkpoint.laod("gs://bucket/a.pt")  # wrong
