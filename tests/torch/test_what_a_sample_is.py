"""Which of the objects that lie below a URL are samples."""

from __future__ import annotations

import copy
import io
import logging
import pickle
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

pytest.importorskip("torch")

from typing import Any

import headrace
from headrace.torch import Loader, MapDataset, ShardStream, TokenDataset

SAMPLES = ["_b/1.jpg", "cat/1.jpg", "cat/2.png", "dog/1.jpg"]
HIDDEN = [".git/config", "__MACOSX/cat/1.jpg", "cat/.DS_Store"]
MARKERS = ["", "cat/", "dog/", "dog/later/", "old_$folder$"]


def fill(gcs: headrace.Store) -> headrace.Store:
    below = headrace.Store(f"{gcs.url}/.data", endpoint=gcs._settings.endpoint)
    for name in SAMPLES + HIDDEN:
        below.write(name, b"data")
    for name in MARKERS[1:]:
        below.write(name, b"")
    return below


def name_of(sample: headrace.Sample) -> str:
    return sample.name


def test_folder_markers_and_hidden_names_are_no_samples(
    gcs: headrace.Store, caplog: pytest.LogCaptureFixture
) -> None:
    store = fill(gcs)
    with caplog.at_level(logging.INFO, "headrace"):
        dataset = MapDataset(store, name_of)
    assert list(dataset) == SAMPLES
    assert "left out: 4 folder markers, 3 hidden objects" in repr(dataset)
    assert "left out as no samples: 4 folder markers, 3 hidden objects" in caplog.text
    assert list(MapDataset(store, name_of, hidden=True)) == sorted(SAMPLES + HIDDEN)
    assert list(MapDataset(store, name_of, suffix=(".png",))) == ["cat/2.png"]


def test_hidden_folders_are_no_classes(gcs: headrace.Store) -> None:
    dataset = MapDataset.from_folders(fill(gcs), suffix=".jpg")
    assert dataset.classes == ("_b", "cat", "dog")
    assert list(dataset.labels or ()) == [0, 1, 2]
    assert "3 hidden" not in repr(dataset)
    assert "1 hidden object" in repr(dataset)


def test_an_index_that_is_given_is_taken_as_it_is(tmp_path: Path) -> None:
    (tmp_path / ".a").write_bytes(b"1")
    store = headrace.Store(tmp_path)
    assert len(MapDataset(store, index=store.index())) == 1
    with pytest.raises(headrace.InvalidArgumentError, match=r"index\.filter"):
        MapDataset(store, index=store.index(), hidden=True)
    with pytest.raises(headrace.NotFoundError, match=r"1 hidden object .hidden=True takes"):
        MapDataset(store)


def test_a_state_of_samples_chosen_by_another_rule_is_refused_by_name(tmp_path: Path) -> None:
    for name in (".a", "b", "c"):
        (tmp_path / name).write_bytes(b"1")
    state = Loader(MapDataset(tmp_path, hidden=True), batch_size=1).state_dict()
    loader = Loader(MapDataset(tmp_path), batch_size=1)
    with pytest.raises(headrace.InvalidArgumentError, match="by another rule: no folder markers"):
        loader.load_state_dict(state)
    del state["chosen"]  # as older ones are
    with pytest.raises(headrace.InvalidArgumentError, match="every object of a listing"):
        loader.load_state_dict(state)
    # The same samples are the same data, however they were found.
    store = headrace.Store(tmp_path)
    index = store.index().filter(leave_out=".")
    loader.load_state_dict(Loader(MapDataset(store, index=index), batch_size=1).state_dict())


def test_packing_leaves_hidden_names_out_and_takes_a_folder_with_a_dot(tmp_path: Path) -> None:
    source = headrace.Store(f"file://{tmp_path}/raw.v2")
    for name in ("a.txt", ".hidden/b.txt", "__MACOSX/c.txt"):
        source.write(name, b"1")
    assert headrace.pack(source.url, tmp_path / "out").samples == 1
    assert headrace.pack(source.url, tmp_path / "all", hidden=True).samples == 3


def test_packing_takes_a_folder_with_a_dot_of_a_bucket(gcs: headrace.Store) -> None:
    endpoint = gcs._settings.endpoint
    gcs.write("raw.v2/a.txt", b"1")
    packed = headrace.pack(f"{gcs.url}/raw.v2", f"{gcs.url}/out", endpoint=endpoint)
    assert packed.samples == 1


def test_copies_have_hidden_objects_too(tmp_path: Path) -> None:
    for name in (".metadata", "__0_0.distcp"):
        (tmp_path / "step-1").mkdir(exist_ok=True)
        (tmp_path / "step-1" / name).write_bytes(b"1")
    for command in (["cp", "-r"], ["sync"]):
        target = tmp_path / command[0]
        arguments = [*command, f"{tmp_path}/step-1/", f"{target}/"]
        subprocess.run([sys.executable, "-m", "headrace", *arguments], check=True, timeout=60)
        assert sorted(each.name for each in target.iterdir()) == [".metadata", "__0_0.distcp"]


def test_missing_labels_and_columns_of_one_name_are_errors(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    urls = [str(tmp_path / "a")] * 2
    for missing in (None, float("nan")):
        with pytest.raises(headrace.InvalidArgumentError, match="row 1 of the table has label="):
            MapDataset.from_table({"url": urls, "label": [1, missing]})
        with pytest.raises(headrace.InvalidArgumentError, match="label 0 is"):
            MapDataset(tmp_path, labels=[missing])
    pandas = pytest.importorskip("pandas")
    twice = pandas.DataFrame([[*urls[:1], 1, 2]], columns=["url", "label", "label"])
    with pytest.raises(headrace.InvalidArgumentError, match="the column 'label' twice"):
        MapDataset.from_table(twice)


def test_booleans_of_numpy_are_labels_as_those_of_python(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    (tmp_path / "a").write_bytes(b"1")
    for value in (True, numpy.True_):
        [label] = MapDataset(tmp_path, labels=[value]).labels or ()
        assert label == 1
        assert isinstance(label, int)


def test_a_column_without_a_name_is_left_out_of_a_csv(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / "t.csv").write_text(f",url,label\n0,{tmp_path}/a,7\n")
    dataset = MapDataset.from_table(tmp_path / "t.csv")
    assert list(dataset.labels or ()) == [7]
    assert dataset.objects.columns == ("label",)


def test_a_pair_of_megatron_is_found_by_its_name_without_a_suffix() -> None:
    golden = Path(__file__).parent.parent / "tokens" / "golden" / "megatron"
    whole = TokenDataset(f"{golden}.idx", seq_len=8)
    assert TokenDataset(golden, seq_len=8)[0].tolist() == whole[0].tolist()


def test_what_a_file_is_pickles_as_its_equal(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    info = headrace.Store(tmp_path).stat("a")
    assert pickle.loads(pickle.dumps(info)) == info
    assert copy.copy(info) == info
    assert {info} == {copy.deepcopy(info)}


class _Locked:
    """Credentials that do not pickle, as sessions of boto3 do not."""

    def get_credentials(self) -> None:
        return None

    def __reduce__(self) -> str:
        raise TypeError("cannot pickle a lock")


def test_credentials_that_do_not_pickle_are_named() -> None:
    store = headrace.Store("s3://bucket/x", credentials=_Locked())
    with pytest.raises(headrace.InvalidArgumentError, match=r"credentials is _Locked.*AwsKeys"):
        pickle.dumps(store)
    assert copy.copy(store).url == copy.deepcopy(store).url == store.url


def test_the_end_of_a_shard_that_no_epoch_reaches_comes_in_the_next_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for shard, count in enumerate((100, 10)):
        with tarfile.open(tmp_path / f"{shard}.tar", "w") as tar:
            for i in range(count):
                member = tarfile.TarInfo(f"{shard}{i:03d}.cls")
                member.size = 1
                tar.addfile(member, io.BytesIO(b"1"))
    stream = ShardStream(tmp_path, epoch_samples=110, shuffle_window=5, rank=0, world_size=2)
    seen = []
    for epoch in range(2):
        stream.set_epoch(epoch)
        seen += [sample["__key__"] for sample in stream]
    assert len(seen) == len(set(seen)) == 110
    assert caplog.text == ""


class Sized(MapDataset):
    """A subclass with an __init__ of its own."""

    def __init__(self, source: Any, size: int, **more: Any) -> None:
        super().__init__(source, **more)
        self.size = size


def test_a_subclass_that_cannot_be_made_of_folders_or_a_table_is_told(tmp_path: Path) -> None:
    store = headrace.Store(tmp_path)
    store.write("cat/1", b"1")
    table = {"url": [store.url_of("cat/1")]}
    for method, given in (("from_folders", store), ("from_table", table)):
        with pytest.raises(
            TypeError,
            match=rf"{method} calls Sized\(stores, transform=, index=, labels=, classes=, seed=",
        ):
            getattr(Sized, method)(given)
        assert len(getattr(MapDataset, method)(given)) == 1


def test_a_subclass_is_called_by_its_own_name(tmp_path: Path) -> None:
    store = headrace.Store(tmp_path)
    store.write("1", b"1")
    assert repr(Sized(store, 3)).startswith("Sized(")
    assert repr(MapDataset(store)).startswith("headrace.torch.MapDataset(")


def test_a_transform_and_more_reach_a_subclass_that_hands_them_on(tmp_path: Path) -> None:
    class Named(MapDataset):
        def __init__(self, *given: Any, **more: Any) -> None:
            super().__init__(*given, **more)
            self.is_named = True

    headrace.Store(tmp_path).write("cat/1", b"1")
    made = Named.from_folders(tmp_path, lambda sample: sample.bytes())
    assert (list(made), made.classes, made.is_named) == ([(b"1", 0)], ("cat",), True)  # type: ignore[attr-defined]
