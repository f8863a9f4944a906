"""Samples in shards by number: what they are, what they cost, and in which order they come."""

from __future__ import annotations

import contextlib
import io
import itertools
import logging
import multiprocessing
import pickle
import random
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Subset
from webdataset.tariterators import group_by_keys, tar_file_expander

import headrace
from headrace.torch import Loader, MapDataset, ShardDataset
from testing.faultserver.client import FaultServer
from tests.shards.tars import by_webdataset, fill, media, number_of, samples_of, tar


def by_reference(folder: Path, names: list[str]) -> list[dict[str, Any]]:
    """Return the samples that webdataset finds."""
    samples: list[dict[str, Any]] = []
    for name in names:
        # WebDataset(url) leaves its files open.
        with open(folder / name, "rb") as stream:
            files = tar_file_expander([{"url": str(folder / name), "stream": stream}])
            samples += group_by_keys(files)
    return samples


def as_reference(sample: dict[str, Any]) -> dict[str, Any]:
    """Return a sample as webdataset has it."""
    out = {
        name: value if isinstance(value, str) else value.numpy().tobytes()
        for name, value in sample.items()
    }
    out["__url__"] = out["__url__"].removeprefix("file://")
    return out


# ---- what samples are

PARTS = st.sampled_from(["a", "b", "00", "x.y", "", "__m__", "__n", "-"])
NAMES = st.builds(
    lambda folders, base, ends: "/".join([*folders, ".".join([base, *ends])]),
    st.lists(st.sampled_from(["d", "e.f", "__m__", "..", "."]), max_size=2),
    PARTS,
    st.lists(st.sampled_from(["jpg", "JPG", "cls", "seg", ""]), max_size=2),
)


def is_like_webdataset(name: str) -> bool:
    # webdataset makes "d/.x" the field "x" of a sample "d/", which nobody wants.
    return not name.rpartition("/")[2].startswith(".")


@hypothesis.settings(max_examples=150)
@hypothesis.given(st.lists(NAMES.filter(is_like_webdataset), min_size=1, max_size=12))
def test_samples_are_those_of_webdataset(names: list[str]) -> None:
    names = [name for name in names if name.rstrip("/") == name]
    shard = tar([(name, b"%d" % i) for i, name in enumerate(names)])
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "a.tar").write_bytes(shard)
        wanted = []
        with contextlib.suppress(ValueError):  # a field twice
            wanted = by_reference(Path(folder), ["a.tar"])
        keys = [sample["__key__"] for sample in wanted]
        if not keys or len(set(keys)) < len(keys):
            text = "in two places" if keys else "already|in two places|no sample"
            with pytest.raises(headrace.InvalidArgumentError, match=text):
                ShardDataset(folder)
            return
        assert [as_reference(sample) for sample in ShardDataset(folder)] == wanted


def test_shards_that_webdataset_wrote_are_read_as_webdataset_reads_them(tmp_path: Path) -> None:
    draw = random.Random(7)
    names = [f"shard-{i}.tar" for i in range(3)]
    for i, name in enumerate(names):
        samples = [
            {
                "__key__": f"train/{i}/{k:05d}",
                "seg.png": draw.randbytes(draw.randrange(70_000)),
                "json": {"number": k},
                "cls": k,
                "txt": "ä" * draw.randrange(50),
            }
            for k in range(40)
        ]
        (tmp_path / name).write_bytes(by_webdataset(samples))
    dataset = ShardDataset(f"{tmp_path}/shard-{{0..2}}.tar")
    assert len(dataset) == 120
    assert [as_reference(sample) for sample in dataset] == by_reference(tmp_path, names)


def test_a_transform_sees_fields_that_share_the_memory_of_the_sample(store: headrace.Store) -> None:
    fill(store, 1, 3)
    seen: list[dict[str, Any]] = []
    dataset = ShardDataset(store, lambda fields: seen.append(fields) or number_of(fields))
    dataset.set_epoch(3)
    assert [dataset[i] for i in range(3)] == [0, 1, 2]
    first = seen[0]
    assert list(first) == ["__key__", "__url__", "jpg", "cls"]
    assert first["__url__"] == store.url_of("shard-000.tar") == first["jpg"].url
    assert isinstance(first["jpg"], headrace.Sample)
    assert (len(first["jpg"]), len(first["cls"])) == (1000, 1)
    addresses = [field.numpy().ctypes.data for field in (first["jpg"], first["cls"])]
    assert addresses[1] - addresses[0] == 1024 + 512  # as in the shard
    # The same random numbers for each field, so that a picture and its mask are cropped alike.
    draws = [first[name].rng().python.random() for name in ("jpg", "cls")]
    assert draws[0] == draws[1] != seen[1]["jpg"].rng().python.random()
    kept = pickle.loads(pickle.dumps(first))
    assert kept["jpg"].bytes() == first["jpg"].bytes()
    seen.clear()
    del dataset
    assert first["cls"].bytes() == b"0"


@pytest.mark.every_store
def test_without_a_transform_fields_are_tensors(store: headrace.Store) -> None:
    fill(store, 1, 2)
    sample = ShardDataset(store)[-1]
    assert sample["__key__"] == "000001"
    assert sample["jpg"].shape == (1000,)
    assert sample["jpg"].dtype == torch.uint8
    assert bytes(sample["cls"].tolist()) == b"1"


def test_keys_and_fields_are_known_without_reading(
    gcs: headrace.Store, server: FaultServer
) -> None:
    fill(gcs, 1, 2)
    dataset = ShardDataset(gcs)
    before = len(media(server))
    assert (dataset.key(1), dataset.field_names(0)) == ("000001", ("jpg", "cls"))
    assert dataset.url(1) == gcs.url_of("shard-000.tar")
    assert len(media(server)) == before
    with pytest.raises(IndexError):
        dataset.key(2)


def test_empty_fields_are_empty(store: headrace.Store) -> None:
    store.write("a.tar", tar([("1.a", b""), ("1.b", b""), ("2.a", b""), ("2.b", b"x")]))
    sizes = [
        (len(sample["a"]), len(sample["b"]))
        for sample in ShardDataset(store, lambda fields: fields)
    ]
    assert sizes == [(0, 0), (0, 1)]
    assert [len(sample["a"]) for sample in ShardDataset(store, fields=["a"])] == [0, 0]


def test_members_in_no_sample_are_left_out_and_logged(
    store: headrace.Store, caplog: pytest.LogCaptureFixture
) -> None:
    store.write("a.tar", tar([("README", b"x"), *samples_of(0, 2), ("__meta__/a.json", b"{}")]))
    with caplog.at_level(logging.WARNING, "headrace"):
        assert len(ShardDataset(store)) == 2
    assert "2 members are in no sample" in caplog.text
    assert f"{store.url_of('a.tar')}: README, ..." in caplog.text


def test_names_that_lead_elsewhere_are_keys_and_no_more(store: headrace.Store) -> None:
    store.write("a.tar", tar([("../x.jpg", b"1"), ("./y.jpg", b"2"), ("/etc/z.jpg", b"3")]))
    keys = [sample["__key__"] for sample in ShardDataset(store)]
    assert keys == ["../x", "./y", "/etc/z"]


def test_a_hard_link_far_from_its_sample_is_an_error(store: headrace.Store) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, size in (("a.jpg", 1000), ("b.bin", 3_000_000)):
            info = tarfile.TarInfo(name)
            info.size = size
            archive.addfile(info, io.BytesIO(bytes(size)))
        link = tarfile.TarInfo("c.jpg")
        link.type, link.linkname = tarfile.LNKTYPE, "a.jpg"
        archive.addfile(link)
        info = tarfile.TarInfo("c.cls")
        info.size = 1
        archive.addfile(info, io.BytesIO(b"1"))
    store.write("a.tar", out.getvalue())
    with pytest.raises(headrace.InvalidArgumentError, match=r"'c'.* are scattered over"):
        ShardDataset(store)


# ---- what they cost


def test_a_sample_is_one_request_of_its_bytes(gcs: headrace.Store, server: FaultServer) -> None:
    fill(gcs, 2, 10, 5000)
    alone = headrace.ParallelOptions(max_gap_bytes=None)
    dataset = ShardDataset(
        headrace.index_members(gcs), number_of, endpoint=server.url, parallel=alone
    )
    before = len(media(server))
    assert sorted(itertools.chain(*Loader(dataset, 7, shuffle=True, collate_fn=list))) == [
        *range(20)
    ]
    assert media(server)[before:] == [5120 + 512 + 1] * 20


def test_fields_that_are_not_wanted_are_not_read(gcs: headrace.Store, server: FaultServer) -> None:
    members = [
        member
        for i in range(5)
        for member in (
            (f"{i}.mp4", bytes(20_000)),
            (f"{i}.jpg", bytes(1000)),
            (f"{i}.cls", b"%d" % i),
        )
    ]
    gcs.write("a.tar", tar(members))
    index = headrace.index_members(gcs)
    for fields, size_bytes in (
        (("jpg", "cls"), 1024 + 512 + 1),
        (("cls", "jpg"), 1024 + 512 + 1),
        (["CLS"], 1),
        (["mp4", "cls"], 20_480 + 512 + 1024 + 512 + 1),
    ):
        dataset = ShardDataset(gcs, index=index, fields=fields)
        before = len(media(server))
        sample = dataset[3]
        assert list(sample)[2:] == [name.lower() for name in fields]
        assert bytes(sample["cls"].tolist()) == b"3"
        assert media(server)[before:] == [size_bytes]


def test_what_lies_between_wanted_fields_is_read_however_long_it_is(
    gcs: headrace.Store, server: FaultServer
) -> None:
    gcs.write("a.tar", tar([("1.cls", b"1"), ("1.mp4", bytes(2 << 20)), ("1.txt", b"hello")]))
    dataset = ShardDataset(gcs, fields=["cls", "txt"])
    before = len(media(server))
    sample = dataset[0]
    assert (bytes(sample["cls"].tolist()), bytes(sample["txt"].tolist())) == (b"1", b"hello")
    assert sum(media(server)[before:]) == 512 + 512 + (2 << 20) + 512 + 5


def test_an_index_of_members_or_samples_costs_no_request(
    gcs: headrace.Store, server: FaultServer
) -> None:
    fill(gcs, 2, 3)
    members = headrace.index_members(gcs)
    whole = ShardDataset(gcs, number_of)
    before = len(server.log())
    for given in (members, whole.objects):
        for dataset in (
            ShardDataset(given, number_of, endpoint=server.url),
            ShardDataset(gcs, number_of, index=given),
        ):
            assert dataset.objects.fingerprint == whole.objects.fingerprint
            assert len(server.log()) == before
    assert [dataset[i] for i in range(6)] == [*range(6)]
    narrow = ShardDataset(gcs, index=whole.objects, fields=["cls"])
    assert list(narrow[0]) == ["__key__", "__url__", "cls"]


# ---- bad input


def test_what_cannot_be_is_an_error(store: headrace.Store) -> None:
    fill(store, 1, 3)
    for wrong, text in (
        ({"fields": "jpg"}, "fields is 'jpg'"),
        ({"fields": []}, r"fields is \[\]"),
        ({"fields": ["cls", "CLS"]}, "fields has 'cls' twice"),
        ({"fields": ["png"]}, r"shard-000\.tar: the sample '000000' has no field 'png'"),
        ({"transform": 3}, "transform is 3"),
        ({"index": store.index()}, "neither members nor samples"),
        ({"on_error": "ignore"}, "on_error is 'ignore'"),
    ):
        with pytest.raises(headrace.InvalidArgumentError, match=text):
            ShardDataset(store, **wrong)
    for unknown, text in (
        ({"shuffle": True}, "Loader"),
        ({"batch_size": 8}, "Loader"),
        ({"feilds": ["jpg"]}, "did you mean fields="),
    ):
        with pytest.raises(TypeError, match=text):
            ShardDataset(store, **unknown)
    store.write("shard-000.tar", tar([("README", b"")]))
    with pytest.raises(headrace.InvalidArgumentError, match="there is no sample"):
        ShardDataset(store)


def test_a_key_in_two_places_of_a_shard_is_an_error_and_in_two_shards_is_none(
    store: headrace.Store,
) -> None:
    store.write("a.tar", tar(samples_of(0, 2)))
    store.write("b.tar", tar(samples_of(0, 2)))
    assert len(ShardDataset(store)) == 4
    store.write("b.tar", tar([*samples_of(0, 2), *samples_of(0, 1)]))
    with pytest.raises(
        headrace.InvalidArgumentError, match=r"b\.tar: the sample '000000' is in two"
    ):
        ShardDataset(store)


@pytest.mark.every_store
@pytest.mark.parametrize("on_change", ["error", "reread"])
def test_a_shard_that_is_replaced_is_an_error_when_it_is_read(
    store: headrace.Store, on_change: str
) -> None:
    fill(store, 1, 3)
    dataset = ShardDataset(store._derived(on_change=on_change), number_of)
    assert dataset[0] == 0
    store.write("shard-000.tar", tar(samples_of(7, 3)))
    with pytest.raises(headrace.PreconditionFailedError, match=r"shard-000\.tar"):
        dataset[0]


def test_bad_shards_are_left_out_if_that_is_wanted(store: headrace.Store) -> None:
    fill(store, 2, 3)
    store.write("shard-002.tar", tar(samples_of(6, 3))[:1500])
    errors: list[headrace.HeadraceError] = []
    assert len(ShardDataset(store, on_error=errors.append)) == 6
    assert [error.url for error in errors] == [store.url_of("shard-002.tar")]
    with pytest.raises(headrace.CorruptDataError, match=r"shard-002\.tar"):
        ShardDataset(store)


BAD_SAMPLES = {
    "a key in two places": [*samples_of(0, 2), *samples_of(0, 1)],
    "a field twice": [*samples_of(0, 2), ("000001.CLS", b"1")],
    "a field of ours": [*samples_of(0, 1), ("1.__url__", b"1")],
}


@pytest.mark.parametrize("name", BAD_SAMPLES)
def test_shards_with_bad_samples_are_left_out_if_that_is_wanted(
    store: headrace.Store, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    fill(store, 2, 3)
    store.write("shard-000.5.tar", tar(BAD_SAMPLES[name]))
    index = headrace.index_members(store)
    for given in (None, index):
        errors: list[headrace.HeadraceError] = []
        dataset = ShardDataset(store, number_of, index=given, on_error=errors.append)
        assert [dataset[i] for i in range(len(dataset))] == [*range(6)]
        assert [error.url for error in errors] == [store.url_of("shard-000.5.tar")]
        with pytest.raises(headrace.InvalidArgumentError, match=r"shard-000\.5\.tar"):
            ShardDataset(store, index=given)
    with caplog.at_level(logging.WARNING, "headrace"):
        assert len(ShardDataset(store, on_error="skip")) == 6
    assert f"left out of the index: {store.url_of('shard-000.5.tar')}" in caplog.text


def test_if_all_shards_are_left_out_the_error_says_so(store: headrace.Store) -> None:
    store.write("a.tar", b"no tar" * 1000)
    store.write("b.tar", tar(BAD_SAMPLES["a field twice"]))
    with pytest.raises(headrace.InvalidArgumentError, match="all 2 shards were left out"):
        ShardDataset(store, on_error="skip")
    store.write("c.tar", tar([("README", b"")]))
    with pytest.raises(headrace.InvalidArgumentError, match="a key before a dot; 2 of them were"):
        ShardDataset(store, on_error="skip")


@pytest.mark.parametrize("count", [1, 3])
def test_a_shard_that_is_given_twice_has_its_samples_twice(
    file: headrace.Store, count: int
) -> None:
    fill(file, 2, count)
    names = ["shard-000.tar", "shard-000.tar", "shard-001.tar", "shard-000.tar"]
    dataset = ShardDataset(file.index().select([0, 0, 1, 0]), number_of)
    urls = [file.url_of(name) for name in names for _ in range(count)]
    assert [dataset.url(i) for i in range(len(dataset))] == urls
    first, second = [*range(count)], [*range(count, 2 * count)]
    assert [dataset[i] for i in range(len(dataset))] == [*first, *first, *second, *first]


def test_a_column_of_the_user_does_not_make_samples_of_shards(file: headrace.Store) -> None:
    fill(file, 1, 3)
    for columns in ({"key": ["mine"]}, {"key": ["mine"], "fields": ["yours"]}):
        shards = file.index().with_columns(columns)
        assert len(ShardDataset(shards, number_of)) == 3
    members = headrace.index_members(file)
    given = members.with_columns({"key": ["mine"] * len(members)})
    assert len(ShardDataset(given, number_of)) == 3


def test_only_ascii_letters_of_fields_become_small(store: headrace.Store) -> None:
    store.write("a.tar", tar([("1.ÉX", b"7")], tar_format=tarfile.PAX_FORMAT))
    assert ShardDataset(store).field_names(0) == ("Éx",)
    assert bytes(ShardDataset(store, fields=["ÉX"])[0]["Éx"].tolist()) == b"7"


def test_an_error_of_the_transform_names_the_shard_and_the_sample(store: headrace.Store) -> None:
    fill(store, 1, 3)

    def broken(fields: dict[str, Any]) -> int:
        fields.pop("__key__")
        raise ValueError("no picture")

    dataset = ShardDataset(store, broken)
    with pytest.raises(ValueError, match=r"no picture .*shard-000\.tar") as caught:
        dataset[1]
    assert caught.value.__notes__ == ["in the sample '000001'"]


# ---- loaders


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_torchs_loader_reads_in_workers(store: headrace.Store, method: str) -> None:
    fill(store, 2, 8)
    dataset = ShardDataset(store, number_of)
    assert dataset[0] == 0  # the engine runs in this process before it forks
    loader = DataLoader(
        dataset, 4, shuffle=True, num_workers=2, multiprocessing_context=method, collate_fn=list
    )
    assert sorted(itertools.chain(*loader)) == [*range(16)]


def test_it_combines_with_other_datasets(store: headrace.Store, tmp_path: Path) -> None:
    fill(store, 1, 6)
    other = headrace.Store(tmp_path / "other")
    other.write("100", b"plain")
    both = ConcatDataset(
        [
            Subset(ShardDataset(store, number_of), [5, 1]),
            MapDataset(other, lambda sample: int(sample.name)),
        ]
    )
    assert next(iter(Loader(both, 3))).tolist() == [5, 1, 100]


def test_several_stores_are_one_dataset(gcs: headrace.Store, file: headrace.Store) -> None:
    fill(gcs, 1, 3)
    file.write("other.tar", tar(samples_of(3, 4)))
    file.write("notes.tar", tar([("README", b"")]))
    dataset = ShardDataset([gcs, file], number_of)
    assert [dataset[i] for i in range(7)] == [*range(7)]
    # The one store whose shards have no sample is not needed.
    file.delete("other.tar")
    assert len(ShardDataset([gcs, file], number_of).stores) == 1


def test_stopped_anywhere_and_resumed_on_other_ranks_it_gives_each_sample_once(
    store: headrace.Store,
) -> None:
    fill(store, 5, 23)
    count, draw = 115, random.Random(11)
    dataset = ShardDataset(store, number_of)
    for seed in range(100):
        state: dict[str, Any] | None = None
        seen: list[int] = []
        while len(seen) < count:
            batch_size, world_size = draw.randint(1, 20), draw.randint(1, 3)
            loaders = [
                Loader(
                    dataset, batch_size, shuffle=True, seed=seed, collate_fn=list,
                    rank=rank, world_size=world_size,
                )
                for rank in range(world_size)
            ]  # fmt: skip
            if state is not None:
                for loader in loaders:
                    loader.load_state_dict(state)
            assert len({len(loader) for loader in loaders}) == 1  # equal steps
            steps = zip(*loaders, strict=True)
            for batches in itertools.islice(steps, draw.randint(1, 10)):
                seen += itertools.chain(*batches)
            state = loaders[0].state_dict()
        assert sorted(seen) == [*range(count)], f"seed {seed}"


def test_a_state_of_other_samples_is_refused(store: headrace.Store) -> None:
    fill(store, 2, 5)
    state = Loader(ShardDataset(store, number_of), 2).state_dict()
    narrow = Loader(ShardDataset(store, fields=["cls"]), 2)
    with pytest.raises(headrace.InvalidArgumentError):
        narrow.load_state_dict(state)


def test_it_pickles_without_its_engine(store: headrace.Store) -> None:
    fill(store, 1, 3)
    dataset = ShardDataset(store, number_of)
    assert dataset[0] == 0
    copied = pickle.loads(pickle.dumps(dataset))
    assert [copied[i] for i in range(3)] == [0, 1, 2]
    assert multiprocessing.active_children() == []
