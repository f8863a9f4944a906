"""Which samples a dataset of tokens has, from all kinds of files and stores."""

from __future__ import annotations

import logging
import pickle
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import ConcatDataset, Subset

import headrace
from headrace.torch import Loader, TokenDataset
from tests.tokens.conftest import corpus, llm_c, megatron_index, npy, put, rows, samples_of

TYPES = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "int64"]


@given(
    sizes=st.lists(st.integers(0, 60), min_size=1, max_size=5),
    seq_len=st.integers(1, 20),
    stride=st.none() | st.integers(1, 40),
    dtype=st.sampled_from(TYPES),
    kinds=st.lists(st.sampled_from([".bin", ".npy", ".idx"]), min_size=5, max_size=5),
    batch_size=st.integers(1, 7),
)
def test_every_token_is_where_the_definition_says(
    sizes: list[int],
    seq_len: int,
    stride: int | None,
    dtype: str,
    kinds: list[str],
    batch_size: int,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = headrace.Store(folder)
        files = []
        for i, (size, kind) in enumerate(zip(sizes, kinds, strict=False)):
            tokens = corpus(size, i, dtype)
            files.append(tokens)
            if kind == ".npy":
                store.write(f"{i}.npy", npy(tokens))
                continue
            store.write(f"{i}.bin", tokens.tobytes())
            if kind == ".idx" and dtype != "uint32":  # which Megatron-Core does not have
                lengths = [size // 3, 0, size - size // 3]
                store.write(f"{i}.idx", megatron_index(lengths, dtype))
        expected = samples_of(files, seq_len, stride)
        make = {"seq_len": seq_len, "stride": stride, "dtype": dtype}
        if not expected:
            with pytest.raises(headrace.InvalidArgumentError, match="the longest of"):
                TokenDataset(folder, **make)
            return
        dataset = TokenDataset(folder, **make)
        assert len(dataset) == len(expected)
        assert rows(list(Loader(dataset, batch_size=batch_size))) == expected
        assert [each.tolist() for each in dataset.__getitems__(range(len(dataset)))] == expected
        assert dataset[-1].tolist() == expected[-1]


@pytest.mark.every_store
def test_samples_are_read_from_every_store(store: headrace.Store) -> None:
    files = put(store, {"a.bin": corpus(1000), "b.npy": corpus(700, 1), "c.bin": corpus(5, 2)})
    dataset = TokenDataset(store, seq_len=64, dtype="uint16")
    expected = samples_of(files, 64)
    assert rows(list(Loader(dataset, batch_size=4))) == expected
    shuffled = rows(list(Loader(dataset, batch_size=4, shuffle=True, seed=3)))
    assert shuffled != expected
    assert sorted(shuffled) == sorted(expected)


def test_a_source_is_a_file_a_folder_names_or_several(tmp_path: Path) -> None:
    store = headrace.Store(tmp_path)
    one, two, three = put(
        store, {"1.bin": corpus(100), "2.bin": corpus(80, 1), "sub/3.npy": corpus(60, 2)}
    )
    store.write("notes.txt", b"no tokens")
    for source, names, files in (
        (tmp_path / "1.bin", None, [one]),
        (f"file://{tmp_path}/sub/3.npy", None, [three]),
        (tmp_path, None, [one, two, three]),
        (store, ["2.bin", "1.bin"], [two, one]),
        (tmp_path, ["sub/3.npy"], [three]),
        ([tmp_path / "2.bin", tmp_path / "sub", tmp_path / "1.bin"], None, [two, three, one]),
        ([tmp_path / "sub" / "3.npy", tmp_path / "1.bin"], None, [three, one]),
    ):
        dataset = TokenDataset(source, seq_len=10, dtype="uint16", names=names)
        assert rows([torch.stack(list(dataset))]) == samples_of(files, 10), source
        assert dataset.url(0).startswith("file://")


def test_an_npy_of_any_version_and_with_a_long_header_is_read(tmp_path: Path) -> None:
    tokens = corpus(500)
    for version in ((1, 0), (2, 0), (3, 0)):
        (tmp_path / "x.npy").write_bytes(npy(tokens, version))
        assert rows([torch.stack(list(TokenDataset(tmp_path / "x.npy", seq_len=9)))]) == samples_of(
            [tokens], 9
        )
    # More of it than is read at first.
    text = b"{'descr': '<u2', 'fortran_order': False, 'shape': (500,), }" + b" " * 3000 + b"\n"
    header = b"\x93NUMPY\1\0" + len(text).to_bytes(2, "little") + text
    (tmp_path / "x.npy").write_bytes(header + tokens.tobytes())
    dataset = TokenDataset(tmp_path / "x.npy", seq_len=499)
    assert dataset[0].tolist() == tokens.tolist()


@pytest.mark.parametrize("dtype", ["uint16", "uint32"])
def test_a_header_of_llm_c_is_no_tokens(tmp_path: Path, dtype: str) -> None:
    tokens = corpus(300, dtype=dtype)
    (tmp_path / "x.bin").write_bytes(llm_c(tokens))
    for source, given_type in ((tmp_path / "x.bin", None), (tmp_path, dtype)):
        dataset = TokenDataset(source, seq_len=9, dtype=given_type)
        assert rows(list(Loader(dataset, batch_size=4))) == samples_of([tokens], 9)
        assert dataset.objects.range(0) == (1024, 1024 + 10 * tokens.itemsize)
    # Beside others.
    (tmp_path / "y.npy").write_bytes(npy(tokens[:40]))
    assert rows([torch.stack(list(TokenDataset(tmp_path, seq_len=9)))]) == samples_of(
        [tokens, tokens[:40]], 9
    )


def test_raw_tokens_that_only_look_like_a_header_are_raw(tmp_path: Path) -> None:
    begin = np.array([20240520, 2], "<u4").view("<u2")
    for tokens in (begin[:1], begin[1:], np.zeros(600, "uint16"), np.zeros(0, "uint16")):
        tokens = np.concatenate([tokens, corpus(2)])
        (tmp_path / "x.bin").write_bytes(tokens.tobytes())
        dataset = TokenDataset(tmp_path / "x.bin", seq_len=len(tokens) - 1, dtype="uint16")
        assert dataset[0].tolist() == tokens.tolist()


def test_samples_are_of_the_type_that_is_asked_for(tmp_path: Path) -> None:
    tokens = np.array([0, 1, 40_000, 65_535], "uint16")
    (tmp_path / "x.bin").write_bytes(tokens.tobytes())
    for cast, dtype in ((torch.int64,) * 2, (torch.int32,) * 2, (None, torch.uint16)):
        dataset = TokenDataset(tmp_path / "x.bin", seq_len=3, dtype="uint16", cast=cast)
        (batch,) = Loader(dataset, batch_size=1)
        assert batch.dtype == dataset[0].dtype == dtype
        assert batch.to(torch.int64).tolist() == [tokens.tolist()]
    for stored, cast in (("int64", torch.int32), ("uint32", torch.int32), ("uint16", torch.int16)):
        (tmp_path / "y.bin").write_bytes(tokens.astype(stored).tobytes())
        with pytest.raises(headrace.InvalidArgumentError, match="hold all values"):
            TokenDataset(tmp_path / "y.bin", seq_len=1, dtype=stored, cast=cast)


def test_a_dtype_is_torchs_numpys_or_a_name(tmp_path: Path) -> None:
    tokens = corpus(10, dtype="uint32")
    (tmp_path / "x.bin").write_bytes(tokens.tobytes())
    for dtype in (torch.uint32, np.uint32, np.dtype("uint32"), "uint32"):
        assert TokenDataset(tmp_path / "x.bin", seq_len=9, dtype=dtype)[0].tolist() == list(tokens)


def test_datasets_are_joined_and_cut_as_torch_does_it(tmp_path: Path) -> None:
    one, two = put(headrace.Store(tmp_path), {"1.bin": corpus(50), "2.bin": corpus(40, 1)})
    parts = [
        TokenDataset(tmp_path / name, seq_len=5, dtype="uint16") for name in ("1.bin", "2.bin")
    ]
    expected = samples_of([one, two], 5)
    both = ConcatDataset(parts)
    assert rows(list(Loader(both, batch_size=4))) == expected
    chosen = [9, 2, 11]
    assert rows(list(Loader(Subset(both, chosen), batch_size=4))) == [expected[i] for i in chosen]
    assert rows(list(Loader(Subset(parts[0], [4, 1]), batch_size=4))) == [expected[4], expected[1]]


def test_a_collate_fn_gets_the_samples(tmp_path: Path) -> None:
    (tokens,) = put(headrace.Store(tmp_path), {"1.bin": corpus(50)})
    loader = Loader(
        TokenDataset(tmp_path, seq_len=5, dtype="uint16"),
        batch_size=3,
        collate_fn=lambda samples: (torch.stack(samples)[:, :-1], torch.stack(samples)[:, 1:]),
    )
    pairs = list(loader)
    assert rows([inputs for inputs, _ in pairs]) == [s[:-1] for s in samples_of([tokens], 5)]
    assert rows([targets for _, targets in pairs]) == [s[1:] for s in samples_of([tokens], 5)]


def test_a_billion_samples_take_no_memory(tmp_path: Path) -> None:
    with (tmp_path / "x.bin").open("wb") as file:
        file.truncate(2 * (10**9 + 1))  # one hole
    dataset = TokenDataset(tmp_path / "x.bin", seq_len=1, dtype="uint16")
    assert len(dataset) == 10**9
    assert len(pickle.dumps(dataset)) < 10_000
    loader = Loader(dataset, batch_size=4, shuffle=True)
    assert next(iter(loader)).tolist() == [[0, 0]] * 4
    # The place in the order is known without going through it.
    assert len(pickle.dumps(loader.state_dict())) < 1000


def test_the_log_says_what_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    put(headrace.Store(tmp_path), {"1.bin": corpus(25), "2.bin": corpus(4), "3.bin": corpus(21)})
    caplog.set_level(logging.INFO, "headrace")
    TokenDataset(tmp_path, seq_len=10, dtype="uint16")
    told = [(each.levelname, each.getMessage()) for each in caplog.records]
    assert [level for level, _ in told] == ["WARNING", "INFO"]
    assert "leaves out 1 of its 3 files, which are too short for a sample of 11" in told[0][1]
    assert "leaves out 8 tokens at the ends" in told[1][1]
