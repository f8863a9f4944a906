"""Files and arguments that cannot be right: what is said of them."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch.utils.data import DataLoader

import headrace
from headrace.torch import Loader, MapDataset, TokenDataset
from tests.tokens.conftest import corpus, llm_c, megatron_index, npy, put, samples_of


def npy_of(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array(out, array)
    return out.getvalue()


@pytest.mark.parametrize(
    ("data", "error", "text"),
    [
        (npy(corpus(100))[:-2], headrace.CorruptDataError, "it was cut"),
        (npy(corpus(100))[:60], headrace.CorruptDataError, "header is cut"),
        (npy(corpus(100))[:7], headrace.CorruptDataError, "header is cut"),
        (b"", headrace.CorruptDataError, "header is cut"),
        (b"no array at all", headrace.CorruptDataError, "no .npy file"),
        (npy_of(corpus(100).reshape(4, 25)), headrace.InvalidArgumentError, "one dimension"),
        (
            npy_of(np.asfortranarray(corpus(100).reshape(4, 25))),
            headrace.InvalidArgumentError,
            "one dimension",
        ),
        (npy_of(np.array(7, "uint16")), headrace.InvalidArgumentError, "one dimension"),
        (npy_of(corpus(100).astype(">u2")), headrace.InvalidArgumentError, "big-endian"),
        (npy_of(np.ones(100, "float32")), headrace.InvalidArgumentError, "its items are <f4"),
        (npy_of(np.ones(100, "uint64")), headrace.InvalidArgumentError, "its items are <u8"),
        (npy_of(np.ones(9, [("a", "u2")])), headrace.InvalidArgumentError, "records"),
    ],
)
def test_an_npy_that_is_none_of_tokens_is_refused(
    store: headrace.Store, data: bytes, error: type[headrace.HeadraceError], text: str
) -> None:
    put(store, {"a.npy": corpus(500)})
    store.write("x.npy", data)
    with pytest.raises(error, match=text) as caught:
        TokenDataset(store, seq_len=10)
    assert caught.value.url == store.url_of("x.npy")
    assert str(caught.value).startswith(store.url_of("x.npy"))


@pytest.mark.parametrize(
    ("index", "error", "text"),
    [
        (megatron_index([60, 40], "uint16")[:-1], headrace.CorruptDataError, "is cut"),
        (b"MMIDIDX", headrace.CorruptDataError, "is cut"),
        (b"{}", headrace.CorruptDataError, "no index of Megatron-Core"),
        (megatron_index([60, 41], "uint16"), headrace.CorruptDataError, "end at byte 202"),
        (megatron_index([60, 39], "uint16"), headrace.CorruptDataError, "end at byte 198"),
        (
            megatron_index([60, 40], "uint16").replace(
                (120).to_bytes(8, "little"), (122).to_bytes(8, "little")
            ),
            headrace.InvalidArgumentError,
            "without a gap",
        ),
    ],
)
def test_an_index_of_megatron_that_does_not_fit_is_refused(
    store: headrace.Store, index: bytes, error: type[headrace.HeadraceError], text: str
) -> None:
    store.write("x.bin", corpus(100).tobytes())
    store.write("x.idx", index)
    for make in ({"source": store}, {"source": store, "names": ["x.idx"]}):
        with pytest.raises(error, match=text) as caught:
            TokenDataset(**make, seq_len=10)
        assert caught.value.url == store.url_of("x.idx")


@pytest.mark.parametrize(
    ("data", "error", "text"),
    [
        (llm_c(corpus(300))[:-2], headrace.CorruptDataError, "has 1622 bytes, and .* byte 1624"),
        (llm_c(corpus(300)) + bytes(2), headrace.CorruptDataError, "its 300 tokens end at"),
        (llm_c(corpus(300))[:100], headrace.CorruptDataError, "it was cut"),
        (llm_c(corpus(300))[:4], headrace.InvalidArgumentError, "its version is 0"),
        (
            llm_c(corpus(300)).replace(b"\1\0\0\0", b"\2\0\0\0", 1),
            headrace.InvalidArgumentError,
            "its version is 2",
        ),
        (
            llm_c(corpus(300, dtype="uint32")),
            headrace.InvalidArgumentError,
            "are uint32, and dtype is uint16",
        ),
    ],
)
def test_a_bin_of_llm_c_that_contradicts_its_header_is_refused(
    store: headrace.Store, data: bytes, error: type[headrace.HeadraceError], text: str
) -> None:
    store.write("x.bin", data)
    for names in (None, ["x.bin"]):
        with pytest.raises(error, match=text) as caught:
            TokenDataset(store, seq_len=10, names=names, dtype="uint16")
        assert caught.value.url == store.url_of("x.bin")


def test_a_bin_of_megatron_is_not_read_as_raw_by_mistake(store: headrace.Store) -> None:
    tokens = corpus(100, dtype="int32")
    store.write("x.bin", tokens.tobytes())
    store.write("x.idx", megatron_index([60, 40], "int32"))
    with pytest.raises(headrace.InvalidArgumentError, match=r"x\.idx is beside it.*name") as caught:
        TokenDataset(store, seq_len=10, names=["x.bin"])
    assert caught.value.url == store.url_of("x.bin")
    expected = samples_of([tokens], 10)
    for names, dtype in ((["x.idx"], None), (["x.bin"], "int32")):
        dataset = TokenDataset(store, seq_len=10, names=names, dtype=dtype)
        assert [each.tolist() for each in dataset] == expected
    # Neither twice, once in each way.
    for names in (["x.bin", "x.idx"], ["x.idx", "x.bin"]):
        with pytest.raises(headrace.InvalidArgumentError, match=r"twice, by itself and by x\.idx"):
            TokenDataset(store, seq_len=10, names=names, dtype="int32")
        assert len(TokenDataset(store, seq_len=10, names=["x.idx"] * 2)) == 2 * len(expected)


def test_an_index_in_a_folder_has_a_bin(store: headrace.Store) -> None:
    put(store, {"a.bin": corpus(100)})
    store.write("z.idx", megatron_index([60, 40], "uint16"))
    with pytest.raises(headrace.NotFoundError, match=r"z\.bin is not beside it") as caught:
        TokenDataset(store, seq_len=10, dtype="uint16")
    assert caught.value.url == store.url_of("z.idx")
    assert len(TokenDataset(store, seq_len=10, dtype="uint16", names=["a.bin"])) == 9


def test_an_array_has_no_index_of_megatron(store: headrace.Store) -> None:
    put(store, {"a.npy": corpus(100)})
    store.write("a.npy.bin", corpus(50).tobytes())
    store.write("a.npy.idx", megatron_index([50], "uint16"))
    assert len(TokenDataset(store, seq_len=10)) == 9 + 4
    with pytest.raises(headrace.InvalidArgumentError, match="one dataset of Megatron-Core"):
        TokenDataset(store, seq_len=10, names=["a.npy"], sequence_order=[0])


def test_one_url_has_one_set_of_options(tmp_path: Path) -> None:
    put(headrace.Store(tmp_path), {"a.bin": corpus(100), "b.bin": corpus(100, 1)})
    plain, unverified = (headrace.Store(tmp_path, verify=verify) for verify in (True, False))
    for sources in ([plain, unverified], [unverified, tmp_path / "a.bin"]):
        with pytest.raises(headrace.InvalidArgumentError, match="different settings") as caught:
            TokenDataset(sources, seq_len=10, dtype="uint16")
        assert str(caught.value).startswith(plain.url)
    same = headrace.Store(tmp_path, verify=True)
    assert (
        len(TokenDataset([plain, tmp_path / "a.bin", same], seq_len=10, dtype="uint16"))
        == 18 + 9 + 18
    )


def test_what_is_not_there_is_named(store: headrace.Store) -> None:
    with pytest.raises(headrace.NotFoundError, match=r"no \.bin or \.npy is below") as caught:
        TokenDataset(store, seq_len=10, dtype="uint16")
    assert caught.value.url == store.url
    put(store, {"a.bin": corpus(100), "c.bin": corpus(100)})
    for name in ("b.bin", "b.idx", "a.idx"):
        with pytest.raises(headrace.NotFoundError, match=name.split(".", maxsplit=1)[0]):
            TokenDataset(store, seq_len=10, dtype="uint16", names=["c.bin", name])
    with pytest.raises(headrace.InvalidArgumentError, match=r"a file of tokens is a \.bin"):
        TokenDataset(store, seq_len=10, dtype="uint16", names=["a.txt"])


def test_files_of_several_types_are_refused(store: headrace.Store) -> None:
    put(store, {"a.bin": corpus(100), "b.npy": corpus(100, dtype="int32")})
    with pytest.raises(headrace.InvalidArgumentError, match=r"int32, and those of .*a\.bin are "):
        TokenDataset(store, seq_len=10, vocab_size=50_000)
    with pytest.raises(headrace.InvalidArgumentError, match="are int32, and dtype is uint16"):
        TokenDataset(store, seq_len=10, dtype="uint16")
    with pytest.raises(headrace.InvalidArgumentError, match="are int32, and dtype is uint32"):
        TokenDataset(store, seq_len=10, names=["b.npy"], dtype="uint32")


def test_raw_tokens_are_not_read_before_somebody_says_their_type(tmp_path: Path) -> None:
    # A vocabulary of 65,536 ids fits into two bytes, one of 65,537 does not.
    for width, how in (
        (2, [{"dtype": "<u2"}, {"dtype": np.uint16}, {"vocab_size": 65_536}]),
        (4, [{"dtype": "<u4"}, {"dtype": "uint32"}, {"vocab_size": 65_537}]),
    ):
        (tmp_path / "x.bin").write_bytes((60_000).to_bytes(width, "little") * 10)
        for source in (tmp_path, tmp_path / "x.bin"):
            with pytest.raises(headrace.InvalidArgumentError, match=r"dtype=.*vocab_size=") as told:
                TokenDataset(source, seq_len=9)
            assert str(told.value.url).endswith("/x.bin")
            for each in how:
                dataset = TokenDataset(source, seq_len=9, **each)
                assert [sample.tolist() for sample in dataset] == [[60_000] * 10]
    with pytest.raises(headrace.InvalidArgumentError, match="little-endian"):
        TokenDataset(tmp_path, seq_len=9, dtype=">u4")


def test_files_that_say_their_type_need_no_dtype(tmp_path: Path) -> None:
    tokens = corpus(300)
    (tmp_path / "a.bin").write_bytes(llm_c(tokens))
    (tmp_path / "b.npy").write_bytes(npy(tokens))
    (tmp_path / "c.bin").write_bytes(tokens.tobytes())
    (tmp_path / "c.idx").write_bytes(megatron_index([300], "uint16"))
    assert len(TokenDataset(tmp_path, seq_len=299)) == 3
    # One among them that does not is told by its name.
    (tmp_path / "d.bin").write_bytes(tokens.tobytes())
    with pytest.raises(headrace.InvalidArgumentError, match=r"d\.bin: it has raw tokens"):
        TokenDataset(tmp_path, seq_len=299)


def test_a_raw_file_is_of_whole_tokens(store: headrace.Store) -> None:
    store.write("a.bin", bytes(1001))
    with pytest.raises(headrace.InvalidArgumentError, match="1001 bytes, which are no whole") as e:
        TokenDataset(store, seq_len=10, dtype="uint16")
    assert e.value.url == store.url_of("a.bin")
    store.write("a.bin", bytes(1002))
    with pytest.raises(headrace.InvalidArgumentError, match="no whole number of uint32"):
        TokenDataset(store, seq_len=10, dtype="uint32")


def test_a_sample_must_fit_into_a_file(store: headrace.Store) -> None:
    put(store, {"a.bin": corpus(10), "b.bin": corpus(11, 1), "c.npy": corpus(0)})
    with pytest.raises(
        headrace.InvalidArgumentError, match="takes 12 tokens, and the longest of 3"
    ):
        TokenDataset(store, seq_len=11, dtype="uint16")
    assert len(TokenDataset(store, seq_len=10, dtype="uint16")) == 1


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"seq_len": 0}, headrace.InvalidArgumentError, "seq_len is 0"),
        ({"seq_len": "9"}, headrace.InvalidArgumentError, "seq_len is '9'"),
        ({"seq_len": 1 << 63}, headrace.InvalidArgumentError, "seq_len is 9223372036854775808"),
        ({"seq_len": (1 << 59) - 1}, headrace.InvalidArgumentError, "the longest of 1 files"),
        ({"stride": 0}, headrace.InvalidArgumentError, "stride is 0"),
        (
            {"stride": 1 << 63},
            headrace.InvalidArgumentError,
            r"stride is .*; it must be below 2\^59",
        ),
        (
            {"stride": 1 << 59},
            headrace.InvalidArgumentError,
            r"stride is .*; it must be below 2\^59",
        ),
        ({"vocab_size": 0}, headrace.InvalidArgumentError, "vocab_size is 0"),
        ({"dtype": "float32"}, headrace.InvalidArgumentError, "dtype is 'float32'"),
        ({"dtype": "uint64"}, headrace.InvalidArgumentError, "it must be one of uint8"),
        ({"cast": "int64"}, headrace.InvalidArgumentError, "cast is 'int64'"),
        ({"names": []}, headrace.InvalidArgumentError, "at least one"),
        ({"names": "a.bin"}, headrace.InvalidArgumentError, "in a list"),
        ({"block_size": 9}, TypeError, "it is called seq_len"),
        ({"sequence_length": 9}, TypeError, "it is called seq_len"),
        ({"shuffle": True}, TypeError, "Loader"),
        ({"endpoint": "http://x"}, headrace.InvalidArgumentError, "belong to the Store"),
        ({"source": 7}, headrace.InvalidArgumentError, "the source is a int"),
        ({"source": []}, headrace.InvalidArgumentError, "the source is a list"),
    ],
)
def test_arguments_that_cannot_work_are_refused(
    store: headrace.Store, arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    put(store, {"a.bin": corpus(100)})
    with pytest.raises(error, match=text):
        TokenDataset(**{"source": store, "seq_len": 9, "dtype": "uint16", **arguments})


@pytest.mark.parametrize("options", [{"on_change": "reread"}, {"content_encoding": "decompress"}])
def test_a_store_must_read_one_version_as_it_is(
    store: headrace.Store, options: dict[str, Any]
) -> None:
    put(store, {"a.bin": corpus(100)})
    with pytest.raises(headrace.InvalidArgumentError, match="one version of a file"):
        TokenDataset(store._derived(**options), seq_len=9)


@pytest.mark.parametrize("cast", ["int64", "stored"])
def test_a_token_beyond_the_vocabulary_is_named(store: headrace.Store, cast: str) -> None:
    tokens = corpus(1000) % 500
    tokens[637] = 500
    put(store, {"a.npy": tokens})
    options: dict[str, Any] = {} if cast == "int64" else {"cast": None}
    dataset = TokenDataset(store, seq_len=10, vocab_size=500, **options)
    url = store.url_of("a.npy")
    text = rf"{url}: the token at byte {128 + 2 * 637} is 500, and vocab_size is 500 \(sample 63, "
    with pytest.raises(headrace.InvalidArgumentError, match=text) as caught:
        list(Loader(dataset, batch_size=7))
    assert caught.value.url == url
    with pytest.raises(headrace.InvalidArgumentError, match=text):
        dataset[63 - len(dataset)]
    with pytest.raises(headrace.InvalidArgumentError, match=text):
        list(Loader(dataset, batch_size=7, collate_fn=list))
    with pytest.raises(headrace.InvalidArgumentError, match="the token at byte"):
        list(DataLoader(dataset, batch_size=7, num_workers=1))
    assert len(list(Loader(TokenDataset(store, seq_len=10, vocab_size=501), batch_size=7))) == 15
    put(store, {"b.bin": np.array([3, -1, 2], "int32")})
    with pytest.raises(headrace.InvalidArgumentError, match="byte 4 is -1"):
        TokenDataset(store, seq_len=2, names=["b.bin"], dtype="int32", vocab_size=9)[0]


def test_a_file_that_was_replaced_is_not_read(store: headrace.Store) -> None:
    tokens = corpus(1001)
    put(store, {"a.bin": tokens})
    dataset = TokenDataset(store, seq_len=100, dtype="uint16")
    batches = iter(Loader(dataset, batch_size=1, prefetch_bytes=0))
    assert next(batches).tolist() == samples_of([tokens], 100)[:1]
    put(store, {"a.bin": corpus(1001, 1)})
    with pytest.raises(headrace.PreconditionFailedError, match=r"a\.bin"):
        list(batches)
    with pytest.raises(headrace.PreconditionFailedError, match=r"a\.bin"):
        dataset[0]
    store.delete("a.bin")
    with pytest.raises(headrace.NotFoundError):
        dataset[0]


def test_a_file_shorter_than_its_index_says_gives_no_short_sample(store: headrace.Store) -> None:
    store.write("a.bin", bytes(range(100)))
    index = headrace.ObjectIndex.from_names(["a.bin"], root=store.url, sizes_bytes=[200])
    dataset = MapDataset(store, index=index.windows(30))
    with pytest.raises(headrace.HeadraceError, match=r"a\.bin"):
        list(Loader(dataset, batch_size=2))
    with pytest.raises(headrace.HeadraceError, match=r"a\.bin"):
        list(dataset)
