"""Files of tokens: what they hold, and what is refused."""

from __future__ import annotations

import array
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

import headrace
from headrace.torch import TokenDataset
from testing.faultserver.client import FaultServer
from tests.killed import kill_when_written
from tests.shards.tars import tar

DOCUMENTS = [b"the first", b"", b"3", b"and the last one"]


def fill(store: headrace.Store) -> None:
    for i, text in enumerate(DOCUMENTS):
        store.write(f"in/{i}", text)  # no document needs an extension


def below(store: headrace.Store, name: str) -> headrace.Store:
    return store._derived(f"{store.url}/{name}")


def with_end(text: bytes) -> list[int]:
    return [*text, 999]


@pytest.mark.every_store
def test_token_datasets_read_them_on_every_store(store: headrace.Store) -> None:
    fill(store)
    out = below(store, "out")
    packed = headrace.pack_tokens(below(store, "in"), out, with_end, shard_samples=3)
    wanted = [token for text in DOCUMENTS for token in with_end(text)]
    assert (packed.shards, packed.samples, packed.tokens) == (2, 4, len(wanted))
    assert packed.index is None
    assert [info.name for info in out.list("train-")] == [
        "train-000000.bin", "train-000000.idx", "train-000001.bin", "train-000001.idx",
    ]  # fmt: skip
    found = b"".join(out.read(f"train-{i:06d}.bin").bytes() for i in range(2))
    assert array.array("H", found).tolist() == wanted
    dataset = TokenDataset(out, seq_len=4)
    assert dataset[0].tolist() == wanted[:5]
    assert headrace.pack_tokens(below(store, "in"), out, with_end, shard_samples=3).written == 0


def test_the_idx_has_the_documents(tmp_path: Path) -> None:
    fill(headrace.Store(tmp_path))
    headrace.pack_tokens(tmp_path / "in", tmp_path / "out", with_end, dtype="int32")
    idx = (tmp_path / "out" / "train-000000.idx").read_bytes()
    lengths = [len(with_end(text)) for text in DOCUMENTS]
    assert headrace._engine.megatron_index(idx) == ("int32", 4, 4 * sum(lengths), True)
    assert array.array("i", idx[34 : 34 + 16]).tolist() == lengths
    assert array.array("q", idx[-40:]).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "int8", "int16", "int32", "int64"])
def test_every_type_is_written_as_numpy_reads_it(tmp_path: Path, dtype: str) -> None:
    headrace.Store(tmp_path).write("in/a", b"a")
    limits = numpy.iinfo(dtype)
    tokens = [limits.max, 0, limits.min, 7]
    packed = headrace.pack_tokens(
        tmp_path / "in", tmp_path / "out", lambda _: tokens, dtype=dtype, layout="raw"
    )
    assert packed.tokens == 4
    file = tmp_path / "out" / "train-000000.bin"
    assert numpy.fromfile(file, dtype).tolist() == tokens
    assert not file.with_suffix(".idx").exists()


@pytest.mark.parametrize(
    "encode",
    [
        list,
        tuple,
        iter,
        lambda text: numpy.frombuffer(text, "uint8").astype("int64"),
        lambda text: torch.tensor(list(text), dtype=torch.int64),
    ],
)
def test_tokens_may_be_any_integers(
    tmp_path: Path, encode: Callable[[bytes], Iterable[int]]
) -> None:
    headrace.Store(tmp_path).write("in/a", b"abc")
    headrace.pack_tokens(tmp_path / "in", tmp_path / "out", encode)
    assert numpy.fromfile(tmp_path / "out" / "train-000000.bin", "uint16").tolist() == [97, 98, 99]


@pytest.mark.parametrize(
    ("made", "told"),
    [
        ([1, 65536], "the token 65536, which uint16 cannot hold"),
        ([-1], "the token -1, which uint16 cannot hold"),
        (numpy.array([3, 70_000]), "the token 70000, which uint16 cannot hold"),
        (torch.tensor([-5]), "the token -5, which uint16 cannot hold"),
        ([1, 2.5], "2.5, a float"),
        (numpy.array([1.0]), "an array of float64"),
        (numpy.array([[1]]), "2 dimensions"),
        (numpy.array([[]]), "2 dimensions"),
        ("text", "a str"),
        (None, "a NoneType"),
    ],
)
def test_what_is_no_token_is_refused_with_the_url(tmp_path: Path, made: Any, told: str) -> None:
    headrace.Store(tmp_path).write("in/a", b"a")
    with pytest.raises(headrace.InvalidArgumentError, match=told) as raised:
        headrace.pack_tokens(tmp_path / "in", tmp_path / "out", lambda _: made)
    assert raised.value.url.endswith("/in/a")
    assert not list((tmp_path / "out").glob("train-*"))
    # Or its document is left out.
    packed = headrace.pack_tokens(
        tmp_path / "in", tmp_path / "out", lambda _: made, on_error="skip"
    )
    assert (packed.samples, packed.tokens) == (0, 0)
    assert [url for url, _ in packed.skipped] == [raised.value.url]


@pytest.mark.parametrize(
    "empty", [[], (), numpy.array([]), torch.tensor([]), numpy.array([], "int64")]
)
def test_a_document_may_have_no_tokens(tmp_path: Path, empty: Any) -> None:
    headrace.Store(tmp_path).write("in/a", b"a")
    headrace.Store(tmp_path).write("in/b", b"bc")
    packed = headrace.pack_tokens(
        tmp_path / "in", tmp_path / "out", lambda text: empty if text == b"a" else list(text)
    )
    assert (packed.samples, packed.tokens) == (2, 2)


def test_members_of_shards_are_documents(tmp_path: Path) -> None:
    headrace.Store(tmp_path).write("in/a.tar", tar([("1.txt", b"one"), ("2.txt", b"two")]))
    packed = headrace.pack_tokens(tmp_path / "in" / "*.tar", tmp_path / "out", list)
    assert (packed.samples, packed.tokens) == (2, 6)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"dtype": "float32"}, "dtype is 'float32'"),
        ({"dtype": "uint32"}, "layout='raw'"),
        ({"layout": "parquet"}, "layout is 'parquet'"),
        ({"encode": 3}, "encode is 3"),
    ],
)
def test_arguments_that_cannot_be_are_refused(
    tmp_path: Path, wrong: dict[str, Any], told: str
) -> None:
    headrace.Store(tmp_path).write("in/a", b"a")
    with pytest.raises(headrace.InvalidArgumentError, match=told):
        headrace.pack_tokens(tmp_path / "in", tmp_path / "out", **{"encode": list} | wrong)


PACK = """
import sys, headrace
store = headrace.Store("gs://bucket/in", endpoint=sys.argv[1])
out = headrace.Store("gs://bucket/out", endpoint=sys.argv[1])
def tell(done, total):
    print("written", flush=True)
headrace.pack_tokens(store, out, list, shard_samples=3, shuffle=True, workers=2, progress=tell)
"""


def test_a_killed_packing_goes_on_and_makes_the_same_files(
    gcs: headrace.Store, server: FaultServer
) -> None:
    for i in range(30):
        gcs.write(f"in/{i}", bytes([i]) * (i + 1))
    kill_when_written(server, PACK, times=4)
    whole, out = below(gcs, "whole"), below(gcs, "out")
    for place in (whole, out):
        packed = headrace.pack_tokens(below(gcs, "in"), place, list, shard_samples=3, shuffle=True)
        assert (packed.shards, packed.samples) == (10, 30)
    for info in whole.list("train-"):
        assert out.read(info.name).bytes() == whole.read(info).bytes()
