"""`MapDataset`: what it lists, reads, and says."""

from __future__ import annotations

import copy
import pickle
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Subset, random_split

import headrace
from headrace.torch import Loader, MapDataset
from headrace.torch._collate import collate
from testing.faultserver.client import FaultServer
from tests.torch.conftest import content, fill, fill_folder, kinds, reads


def numbers(batch: torch.Tensor) -> list[int]:
    """The numbers of the objects in a batch of raw bytes."""
    return [int(bytes(row[:4].tolist())) for row in batch]


def test_it_lists_when_it_is_made(server: FaultServer) -> None:
    dataset = MapDataset(fill(server, 5))
    assert len(dataset) == 5
    assert [(o.name, o.size_bytes) for o in dataset.objects] == [
        (f"{i:04d}", 100) for i in range(5)
    ]
    assert kinds(server) == {"list": 1}


def test_stores_of_one_url_have_one_set_of_options(tmp_path: Path) -> None:
    store = fill_folder(tmp_path, 3)
    assert len(MapDataset([store, tmp_path])) == 6
    other = headrace.Store(tmp_path, verify=False)
    for sources in ([store, other], [other, str(tmp_path)]):
        with pytest.raises(headrace.InvalidArgumentError, match="different settings") as caught:
            MapDataset(sources)
        assert str(caught.value).startswith(store.url)


def test_it_takes_a_url_a_path_and_a_store(tmp_path: Path) -> None:
    store = fill_folder(tmp_path, 3)
    for given in (str(tmp_path), tmp_path, f"file://{tmp_path}", store):
        assert len(MapDataset(given)) == 3


def test_without_a_transform_it_gives_tensors_of_their_own(tmp_path: Path) -> None:
    store = fill_folder(tmp_path, 3)
    store.write("0003", b"")
    dataset = MapDataset(store)
    first, empty = dataset[0], dataset[3]
    assert (first.dtype, first.shape) == (torch.uint8, (100,))
    assert bytes(first.tolist()) == content(0)
    first.fill_(7)  # writable, without a warning
    assert bytes(dataset[0].tolist()) == content(0)
    assert (empty.dtype, empty.shape) == (torch.uint8, (0,))


def test_a_tensor_outlives_all_the_rest(tmp_path: Path) -> None:
    dataset = MapDataset(fill_folder(tmp_path, 2))
    tensor = dataset[1]
    del dataset
    headrace.shutdown()
    assert bytes(tensor.tolist()) == content(1)


def test_a_transform_gets_a_sample(tmp_path: Path) -> None:
    store = fill_folder(tmp_path, 2)
    dataset = MapDataset(store, transform=lambda sample: (sample.url, sample.bytes()))
    assert dataset[1] == (store.url_of("0001"), content(1))
    assert dataset.__getitems__([1, 0, 1]) == [dataset[1], dataset[0], dataset[1]]


def test_a_list_is_read_at_the_same_time(server: FaultServer) -> None:
    """No answer comes before all 64 were asked for."""
    dataset = MapDataset(fill(server, 64))
    server.faults([{"match": {"kind": "media"}, "action": "stall_head"}])

    def release() -> None:
        while server.stats()["in_flight"] < 64:
            pass
        server.faults([])
        server.release()

    thread = threading.Thread(target=release)
    thread.start()
    got = dataset.__getitems__(list(range(63, -1, -1)))
    thread.join()
    assert numbers(torch.stack(got)) == list(range(63, -1, -1))


def test_nothing_but_one_read_per_object_is_asked(server: FaultServer) -> None:
    dataset = MapDataset(fill(server, 20))
    for _ in range(2):
        dataset.__getitems__(list(range(20)))
    assert kinds(server) == {"list": 1, "media": 40}
    assert set(reads(server).values()) == {2}


def test_an_index_takes_the_place_of_the_listing(server: FaultServer) -> None:
    store = fill(server, 10)
    index = store.index().select([3])
    before = kinds(server)
    dataset = MapDataset(store, index=index)
    assert [o.name for o in dataset.objects] == ["0003"]
    assert kinds(server) == before
    assert numbers(dataset[0][None]) == [3]


@pytest.mark.parametrize("index", [-1, np.int64(-1), torch.tensor(-1)])
def test_negative_and_foreign_integers_count(tmp_path: Path, index: int) -> None:
    dataset = MapDataset(fill_folder(tmp_path, 4))
    assert bytes(dataset[index].tolist()) == content(3)
    assert numbers(torch.stack(dataset.__getitems__([index, 0]))) == [3, 0]


@pytest.mark.parametrize("index", [4, -5, 1 << 40])
def test_an_index_out_of_range(tmp_path: Path, index: int) -> None:
    dataset = MapDataset(fill_folder(tmp_path, 4))
    with pytest.raises(IndexError, match="4 objects"):
        dataset[index]
    with pytest.raises(IndexError, match="4 objects"):
        dataset.__getitems__([0, index])


def test_it_ends_a_plain_for_loop(tmp_path: Path) -> None:
    dataset = MapDataset(fill_folder(tmp_path, 3))
    assert numbers(torch.stack(list(dataset))) == [0, 1, 2]  # type: ignore[call-overload]


def test_an_index_error_of_a_transform_does_not_end_a_for_loop(tmp_path: Path) -> None:
    store = fill_folder(tmp_path, 3)
    dataset = MapDataset(store, transform=lambda sample: [0, 1][int(sample.bytes()[:4])])
    it = iter(dataset)
    assert [next(it), next(it)] == [0, 1]
    with pytest.raises(IndexError, match=store.url_of("0002")):
        next(it)


def test_a_float_is_no_index(tmp_path: Path) -> None:
    dataset = MapDataset(fill_folder(tmp_path, 1))
    with pytest.raises(TypeError):
        dataset[0.5]  # type: ignore[index]


def test_no_numbers_give_no_samples(tmp_path: Path) -> None:
    assert MapDataset(fill_folder(tmp_path, 1)).__getitems__([]) == []


def test_a_url_below_which_nothing_is(server: FaultServer) -> None:
    fill(server, 1)
    store = headrace.Store("gs://bucket/dta/", endpoint=server.url)
    with pytest.raises(FileNotFoundError, match=r"gs://bucket/dta: no object") as caught:
        MapDataset(store)
    assert isinstance(caught.value, headrace.NotFoundError)
    assert caught.value.url == "gs://bucket/dta"


def test_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(headrace.NotFoundError, match="no object"):
        MapDataset(tmp_path)


def test_an_empty_index(tmp_path: Path) -> None:
    store = fill_folder(tmp_path, 1)
    with pytest.raises(headrace.InvalidArgumentError, match="index is empty"):
        MapDataset(store, index=store.index()[:0])


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"source": 3}, "the source is a int"),
        ({"source": ".", "transform": 3}, "transform is 3"),
        ({"source": ".", "index": [1]}, "index is a list"),
    ],
)
def test_arguments_that_cannot_work(arguments: dict[str, object], text: str) -> None:
    with pytest.raises(headrace.InvalidArgumentError, match=text):
        MapDataset(**arguments)  # type: ignore[arg-type]


def test_it_pickles_and_copies(tmp_path: Path) -> None:
    dataset = MapDataset(fill_folder(tmp_path, 3))
    dataset[0]
    for again in (pickle.loads(pickle.dumps(dataset)), copy.deepcopy(dataset)):
        assert len(again) == 3
        assert numbers(again[2][None]) == [2]
        assert again.objects.fingerprint == dataset.objects.fingerprint


def test_subsets_of_torch_read_in_batches(server: FaultServer) -> None:
    dataset = MapDataset(fill(server, 10))
    subset = Subset(dataset, [7, 5, 3])
    batches = list(DataLoader(subset, batch_size=3))
    assert [numbers(batch) for batch in batches] == [[7, 5, 3]]
    parts = random_split(dataset, [8, 2], generator=torch.Generator().manual_seed(1))
    seen = [i for part in parts for batch in DataLoader(part, batch_size=4) for i in numbers(batch)]
    assert sorted(seen) == list(range(10))


def test_a_deleted_object_is_named(server: FaultServer) -> None:
    store = fill(server, 4)
    dataset = MapDataset(store)
    store.delete("0002")
    with pytest.raises(headrace.NotFoundError, match="gs://bucket/data/0002"):
        dataset.__getitems__([0, 1, 2, 3])


def test_a_replaced_object_is_named(server: FaultServer) -> None:
    store = fill(server, 4)
    dataset = MapDataset(store)
    store.write("0002", b"x" * 100)
    with pytest.raises(headrace.PreconditionFailedError, match="gs://bucket/data/0002"):
        dataset.__getitems__([0, 1, 2, 3])


def fail(sample: headrace.Sample) -> object:
    raise ZeroDivisionError("no way")


def fail_by_key(sample: headrace.Sample) -> object:
    return {}[3]  # type: ignore[var-annotated]


def test_a_transform_that_raises_names_the_sample(tmp_path: Path) -> None:
    store = fill_folder(tmp_path, 2)
    with pytest.raises(ZeroDivisionError) as caught:
        MapDataset(store, transform=fail)[1]
    assert str(caught.value) == f"no way (in the transform of {store.url_of('0001')})"
    with pytest.raises(KeyError) as by_key:
        MapDataset(store, transform=fail_by_key)[1]
    assert by_key.value.args == (3,)
    assert by_key.value.__notes__ == [f"in the transform of {store.url_of('0001')}"]


@pytest.mark.parametrize("error", [ValueError("no way"), KeyError(3)])
def test_an_exception_that_is_raised_again_names_the_latest_sample(
    tmp_path: Path, error: Exception
) -> None:
    store = fill_folder(tmp_path, 3)
    error = copy.copy(error)

    def transform(sample: headrace.Sample) -> object:
        raise error

    dataset = MapDataset(store, transform)
    for i in range(3):
        with pytest.raises(type(error)) as caught:
            dataset[i]
        text = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
        assert text.count("in the transform of ") == 1
        assert text.count(store.url_of(f"{i:04d}")) == 1
        caught.value.__traceback__ = None


def test_a_transform_cannot_end_an_epoch(tmp_path: Path) -> None:
    """StopIteration out of a dataset would mean to torch that there is no more."""
    store = fill_folder(tmp_path, 2)
    dataset = MapDataset(store, transform=lambda sample: next(iter(())))
    with pytest.raises(RuntimeError, match=store.url_of("0000")):
        list(DataLoader(dataset, batch_size=1))


def test_collate_says_which_sizes_do_not_fit(tmp_path: Path) -> None:
    store = fill_folder(tmp_path, 2)
    store.write("0002", b"longer" * 100)
    loader = DataLoader(MapDataset(store), batch_size=3, collate_fn=collate)
    with pytest.raises(headrace.InvalidArgumentError, match=r"\[100\] at place 0 and \[600\] at p"):
        next(iter(loader))
    nested = [{"x": (torch.zeros(2), 1)}, {"x": (torch.zeros(3), 1)}]
    with pytest.raises(headrace.InvalidArgumentError, match=r"sizes in sample\['x'\]\[0\]: \[2\]"):
        collate(nested)
    with pytest.raises(TypeError, match="default_collate"):
        collate([object()])


@pytest.mark.parametrize("method", [None, "fork", "spawn"])
def test_torchs_own_collate_tells_the_sizes_that_do_not_fit(
    tmp_path: Path, method: str | None
) -> None:
    store = fill_folder(tmp_path, 2)
    store.write("0002", b"longer" * 100)
    workers = {} if method is None else {"num_workers": 1, "multiprocessing_context": method}
    loader = DataLoader(MapDataset(store), batch_size=3, **workers)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError) as caught:
        next(iter(loader))
    text = "".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
    assert "unequal sizes: [100] at place 0 and [600] at place 2 of 3; give a transform" in text


def test_torchs_own_collate_works_for_equal_sizes(tmp_path: Path) -> None:
    loader = DataLoader(MapDataset(fill_folder(tmp_path, 6)), batch_size=4)
    assert [numbers(batch) for batch in loader] == [[0, 1, 2, 3], [4, 5]]


def test_shuffled_by_torch(tmp_path: Path) -> None:
    dataset = MapDataset(fill_folder(tmp_path, 30))
    generator = torch.Generator().manual_seed(3)
    loader = DataLoader(dataset, batch_size=4, shuffle=True, generator=generator)
    seen = [i for batch in loader for i in numbers(batch)]
    assert sorted(seen) == list(range(30))
    assert seen != sorted(seen)


def itself(sample: headrace.Sample) -> headrace.Sample:
    return sample


def test_samples_come_through_a_workers_pipe(tmp_path: Path) -> None:
    store = fill_folder(tmp_path, 6)
    store.write("empty", b"")
    for method in ("fork", "spawn"):
        loader = DataLoader(
            MapDataset(store, itself),
            batch_size=4,
            num_workers=1,
            collate_fn=list,
            multiprocessing_context=method,
        )
        samples = [sample for batch in loader for sample in batch]
        assert [s.bytes() for s in samples] == [*(content(i) for i in range(6)), b""]
        assert samples[1].url == store.url_of("0001")
        samples[0].numpy()[0] = 1  # writable


# ---- ranges


@pytest.mark.parametrize("kind", ["file", "gs"])
def test_a_range_that_is_cut_short_is_never_returned(
    server: FaultServer, tmp_path: Path, kind: str
) -> None:
    store = fill(server, 1) if kind == "gs" else fill_folder(tmp_path, 1)
    index = headrace.ObjectIndex.from_names(
        ["0000"] * 2, root=store.url, begins=[0, 60], ends=[50, 110]
    )
    assert index.common_size_bytes == 50
    whole = MapDataset(store, bytes, index=index)
    together = ConcatDataset([MapDataset(store, index=index[:1]), MapDataset(store, index=index)])
    for read in (
        lambda: whole[-1],
        lambda: list(Loader(whole, 2, collate_fn=list)),
        lambda: list(Loader(together, 3)),
    ):
        with pytest.raises(
            headrace.InvalidArgumentError, match=r"is the range \[60, 110\), and only 40 bytes"
        ):
            read()
    with pytest.raises(headrace.HeadraceError):
        list(Loader(MapDataset(store, index=index), 2))  # straight into the batch
