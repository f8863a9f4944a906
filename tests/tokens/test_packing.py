"""Sequences of Megatron-Core, packed in an order that is given."""

from __future__ import annotations

import json
import pickle
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import ConcatDataset, DataLoader

import headrace
from headrace.torch import Loader, MapDataset, TokenDataset
from testing.faultserver.client import FaultServer
from tests.tokens.conftest import corpus, megatron_index, rows, samples_of

GOLDEN = Path(__file__).parent / "golden"
"""A dataset that Megatron-Core wrote, and what its GPTDataset reads from it; the JSON says how."""


def write(store: headrace.Store, lengths: list[int], dtype: str = "uint16") -> list[np.ndarray]:
    """Write a dataset of sequences, and return them."""
    tokens = corpus(sum(lengths), dtype=dtype)
    store.write("x.bin", tokens.tobytes())
    store.write("x.idx", megatron_index(lengths, dtype))
    return np.split(tokens, np.cumsum(lengths)[:-1])


def packed(sequences: list[np.ndarray], order: Any) -> list[np.ndarray]:
    """Return the one file that there would be in this order."""
    return [np.concatenate([sequences[i] for i in order])]


def test_samples_are_those_of_megatrons_own_dataset() -> None:
    told = json.loads((GOLDEN / "megatron.json").read_text())
    for packing in told["packings"]:
        dataset = TokenDataset(
            GOLDEN / "megatron.idx",
            seq_len=told["seq_len"],
            sequence_order=packing["document_index"],
        )
        assert rows(list(Loader(dataset, batch_size=5))) == packing["samples"]


def test_a_dataset_of_megatron_is_read_in_the_order_of_its_file() -> None:
    tokens = np.fromfile(GOLDEN / "megatron.bin", "uint16")
    dataset = TokenDataset(GOLDEN / "megatron.idx", seq_len=8)
    assert rows(list(Loader(dataset, batch_size=5))) == samples_of([tokens], 8)
    # In a folder it is found by its .bin.
    assert len(TokenDataset(GOLDEN, seq_len=8, dtype="uint16")) == len(dataset)


@given(
    lengths=st.lists(st.integers(0, 12), min_size=1, max_size=12),
    order=st.lists(st.integers(0, 11), min_size=1, max_size=20),
    seq_len=st.integers(1, 20),
    stride=st.none() | st.integers(1, 30),
    dtype=st.sampled_from(["uint8", "uint16", "int32", "int64"]),
)
def test_every_token_is_where_the_order_puts_it(
    lengths: list[int], order: list[int], seq_len: int, stride: int | None, dtype: str
) -> None:
    order = [i % len(lengths) for i in order]
    with tempfile.TemporaryDirectory() as folder:
        sequences = write(headrace.Store(folder), lengths, dtype)
        expected = samples_of(packed(sequences, order), seq_len, stride)
        make: Any = {"seq_len": seq_len, "stride": stride, "sequence_order": order}
        if not expected:
            with pytest.raises(headrace.InvalidArgumentError, match="the longest of 1 files"):
                TokenDataset(f"{folder}/x.idx", **make)
            return
        dataset = TokenDataset(f"{folder}/x.idx", **make)
        assert rows(list(Loader(dataset, batch_size=4))) == expected
        assert dataset[-1].tolist() == expected[-1]
        # One by one, as for a collate_fn.
        assert [each.tolist() for each in Loader(dataset, 1, collate_fn=lambda x: x[0])] == expected


def test_a_sample_is_a_request_for_each_piece_of_the_file(
    gcs: headrace.Store, server: FaultServer
) -> None:
    sequences = write(gcs, [50, 50, 50, 50])
    # The second and third follow each other in the file, too.
    alone = gcs._derived(parallel=headrace.ParallelOptions(max_gap_bytes=None))
    dataset = TokenDataset(alone, seq_len=199, names=["x.idx"], sequence_order=[3, 0, 1, 2])
    server.reset(keep_buckets=True)
    assert dataset[0].tolist() == packed(sequences, [3, 0, 1, 2])[0].tolist()
    log = [each for each in server.log() if each["kind"] == "media"]
    assert sorted(each["bytes_sent"] for each in log) == [100, 300]


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_workers_pack_in_the_same_order(store: headrace.Store, start: str) -> None:
    order = [2, 0, 1, 1]
    sequences = write(store, [30, 20, 25])
    dataset = TokenDataset(store, seq_len=9, names=["x.idx"], sequence_order=torch.tensor(order))
    expected = samples_of(packed(sequences, order), 9)
    assert dataset[1].tolist() == expected[1]
    loader = DataLoader(dataset, batch_size=3, num_workers=2, multiprocessing_context=start)
    assert rows(list(loader)) == expected
    both = ConcatDataset([dataset, TokenDataset(store, seq_len=9, names=["x.idx"])])
    assert rows(list(Loader(both, batch_size=4))) == expected + samples_of(
        packed(sequences, [0, 1, 2]), 9
    )


def test_a_state_belongs_to_one_order(store: headrace.Store) -> None:
    sequences = write(store, [30, 30, 30])

    def loader(order: Any) -> Loader:
        dataset = TokenDataset(store, seq_len=9, names=["x.idx"], sequence_order=order)
        return Loader(dataset, batch_size=2, shuffle=True)

    whole = rows(list(loader([2, 0, 1])))
    begun = loader([2, 0, 1])
    batches = iter(begun)
    seen = next(batches).tolist()
    resumed = loader(np.array([2, 0, 1], "int32"))
    resumed.load_state_dict(begun.state_dict())
    assert seen + rows(list(resumed)) == whole
    assert sorted(whole) == sorted(samples_of(packed(sequences, [2, 0, 1]), 9))
    for other in ([0, 1, 2], None):
        with pytest.raises(headrace.InvalidArgumentError, match="the state is of other data"):
            loader(other).load_state_dict(begun.state_dict())


def test_an_order_belongs_to_the_dataset(store: headrace.Store) -> None:
    sequences = write(store, [30, 30, 30])
    for order in (np.array([2, 0, 1]), torch.tensor([2, 0, 1])):
        before = packed(sequences, order.tolist())
        dataset = TokenDataset(store, seq_len=9, names=["x.idx"], sequence_order=order)
        fingerprint = dataset._fingerprint
        for i, sequence in enumerate(order.tolist()[::-1]):  # as a shuffle in place does it
            order[i] = sequence
        again = pickle.loads(pickle.dumps(dataset))
        for each in (dataset, again):
            assert [sample.tolist() for sample in each] == samples_of(before, 9)
            assert each._fingerprint == fingerprint
        other = TokenDataset(store, seq_len=9, names=["x.idx"], sequence_order=order)
        assert other._fingerprint != fingerprint


def test_an_order_may_be_any_array_of_integers(store: headrace.Store, tmp_path: Path) -> None:
    order = [2, 0, 1, 1]
    expected = samples_of(packed(write(store, [30, 20, 25]), order), 9)
    np.save(tmp_path / "order.npy", np.array(order, "int32"))
    read_only = np.array(order)
    read_only.setflags(write=False)
    for given_order in (
        np.load(tmp_path / "order.npy", mmap_mode="r"),
        read_only,
        np.array(order[::-1])[::-1],
        np.array([order, order]).T[:, 0],
        torch.tensor([0, 2, 0, 0, 0, 1, 0, 1])[1::2],
        *(np.array(order, kind) for kind in (">i8", ">u2", "uint64", "uint8", "int32")),
        *(torch.tensor(order, dtype=kind) for kind in (torch.uint64, torch.int8)),
        range(2, -1, -1),
        iter(order),
        tuple(np.array(order)),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            dataset = TokenDataset(store, seq_len=9, names=["x.idx"], sequence_order=given_order)
        if isinstance(given_order, range):
            assert len(dataset) == 74 // 9
        else:
            assert [sample.tolist() for sample in dataset] == expected


def test_a_dataset_holds_no_more_than_its_parts(store: headrace.Store) -> None:
    count = 20_000
    write(store, [1] * count)
    order = np.random.default_rng(3).permutation(count)
    dataset = TokenDataset(store, seq_len=9, names=["x.idx"], sequence_order=order)
    assert len(pickle.dumps(dataset)) < 16 * count + 4096
    in_order = TokenDataset(store, seq_len=9, names=["x.idx"], sequence_order=range(count))
    assert len(pickle.dumps(in_order)) < 4096


def test_a_token_beyond_the_vocabulary_is_named_by_its_byte_in_the_file(
    store: headrace.Store,
) -> None:
    tokens = corpus(1000) % 500
    tokens[900] = 500
    store.write("x.bin", tokens.tobytes())
    store.write("x.idx", megatron_index([500, 500], "uint16"))
    dataset = TokenDataset(
        store, seq_len=10, names=["x.idx"], sequence_order=[1, 0], vocab_size=500
    )
    text = r"x\.bin: the token at byte 1800 is 500, .*\(sample 39, place 10\)"
    for read in (lambda: dataset[39], lambda: list(Loader(dataset, batch_size=7))):
        with pytest.raises(headrace.InvalidArgumentError, match=text) as caught:
            read()
        assert caught.value.url == store.url_of("x.bin")


def test_packed_samples_are_no_objects_to_read_by_themselves(store: headrace.Store) -> None:
    write(store, [30, 20, 25])
    dataset = TokenDataset(store, seq_len=9, names=["x.idx"], sequence_order=[2, 0, 1])
    assert len(dataset.objects) == len(dataset)
    assert dataset.objects.name(0) == "x.bin packed"
    assert dataset.url(0) == store.url_of("x.bin")
    with pytest.raises(headrace.NotFoundError, match="packed"):
        MapDataset(store, index=dataset.objects)[0]
    # Those of a file that is read as it is are ranges of it.
    plain = TokenDataset(store, seq_len=9, names=["x.idx"], cast=None)
    read = MapDataset(store, index=plain.objects)[3]
    assert bytes(read.numpy()) == plain[3].numpy().tobytes()


def test_gaps_between_sequences_are_read_in_an_order_alone(store: headrace.Store) -> None:
    tokens = corpus(100)
    store.write("x.bin", tokens.tobytes())
    index = megatron_index([40, 58], "uint16")
    at = index.index((80).to_bytes(8, "little"))
    store.write("x.idx", index[:at] + (84).to_bytes(8, "little") + index[at + 8 :])
    with pytest.raises(headrace.InvalidArgumentError, match="sequence_order=range"):
        TokenDataset(store, seq_len=9)
    dataset = TokenDataset(store, seq_len=97, sequence_order=range(2))
    assert dataset[0].tolist() == [*tokens[:40], *tokens[42:]]


@pytest.mark.parametrize(
    ("order", "text"),
    [
        ([0, 3], "has the number 3, and there are 3 sequences"),
        ([-1], "has the number -1"),
        ([], "at least one"),
        ([[0, 1]], r"the shape \(1, 2\)"),
        ([0.0, 1.0], "float64"),
        ([True], "bool"),
        (["a"], "the numbers of sequences"),
        ([[0], [1, 2]], "numbers of sequences"),
        (np.array([1, (1 << 64) - 1], "uint64"), "has the number 18446744073709551615"),
        (torch.tensor([1.0], dtype=torch.bfloat16), "no numbers of sequences"),
        (7, "no numbers of sequences"),
        (torch.tensor(1), "the shape"),
    ],
)
def test_an_order_that_cannot_be_is_refused(store: headrace.Store, order: Any, text: str) -> None:
    write(store, [30, 30, 30])
    with pytest.raises(headrace.InvalidArgumentError, match=text):
        TokenDataset(store, seq_len=9, sequence_order=order)


def test_only_one_dataset_of_megatron_has_an_order(store: headrace.Store) -> None:
    write(store, [30, 30, 30])
    store.write("y.bin", bytes(100))
    for names in (None, ["y.bin"], ["x.idx", "y.bin"]):
        with pytest.raises(headrace.InvalidArgumentError, match="one dataset of Megatron-Core"):
            TokenDataset(store, seq_len=9, names=names, sequence_order=[0])
    with pytest.raises(headrace.InvalidArgumentError, match="are uint16, and dtype is int32"):
        TokenDataset(store, seq_len=9, names=["x.idx"], sequence_order=[0], dtype="int32")


def test_a_dataset_that_was_replaced_is_not_read(store: headrace.Store) -> None:
    write(store, [30, 30, 30])
    dataset = TokenDataset(store, seq_len=9, sequence_order=[2, 1, 0])
    store.write("x.bin", corpus(90, 7).tobytes())
    with pytest.raises(headrace.PreconditionFailedError, match=r"x\.bin"):
        list(Loader(dataset, batch_size=3))
