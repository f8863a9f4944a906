"""What a map-style dataset reads before it is asked: what follows evenly, and nothing else."""

from __future__ import annotations

import copy
import os
import pickle
import threading
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

import headrace
from headrace.compat.dataflux_pytorch import dataflux_mapstyle_dataset as mapstyle
from testing.faultserver.client import FaultServer
from tests.compat.bucket import BUCKET, count

Objects = dict[str, bytes]


@pytest.fixture
def dataset(objects: Objects) -> mapstyle.DataFluxMapStyleDataset:
    """The 40 objects by index."""
    return mapstyle.DataFluxMapStyleDataset("project", BUCKET)


def names_read(server: FaultServer) -> list[str]:
    """What was asked for, in the order of its names."""
    found = [each["target"] for each in server.log() if each["kind"] == "media"]
    return sorted(each.partition("/o/")[2].partition("?")[0][-3:] for each in found)


def read(dataset: Any, *batches: list[int]) -> list[list[bytes]]:
    return [dataset.__getitems__(indices) for indices in batches]


def expected(objects: Objects, *batches: list[int]) -> list[list[bytes]]:
    contents = list(objects.values())
    return [[contents[index] for index in indices] for indices in batches]


def test_the_third_of_even_batches_reads_two_more_ahead(
    server: FaultServer, objects: Objects, dataset: Any
) -> None:
    batches = [[0, 1], [2, 3], [4, 5]]
    assert read(dataset, *batches[:2]) == expected(objects, *batches[:2])
    assert names_read(server) == ["000", "001", "002", "003"]
    assert read(dataset, batches[2]) == expected(objects, batches[2])
    # Two batches of the first one's size: objects grow, so that is 8 and 9 at the most.
    assert {"004", "005"} <= set(names_read(server)[4:]) <= {f"{i:03d}" for i in range(4, 10)}


def test_an_epoch_in_order_asks_for_each_object_once(
    server: FaultServer, objects: Objects, dataset: Any
) -> None:
    for _ in range(2):
        server.reset(keep_buckets=True)
        loader: DataLoader[Any] = DataLoader(dataset, batch_size=6, collate_fn=list)
        assert [content for batch in loader for content in batch] == list(objects.values())
        assert names_read(server) == [f"{i:03d}" for i in range(40)]


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers_read_their_own_batches_ahead_and_each_object_once(
    server: FaultServer, objects: Objects, dataset: Any, context: str
) -> None:
    read(dataset, [0], [1], [2])  # the parent is reading ahead when it forks
    server.reset(keep_buckets=True)
    loader: DataLoader[Any] = DataLoader(
        dataset, batch_size=3, num_workers=2, collate_fn=list, multiprocessing_context=context
    )
    assert [content for batch in loader for content in batch] == list(objects.values())
    names = names_read(server)
    # The parent's own may still be on their way.
    assert len(names) <= 42
    assert set(names) == {f"{i:03d}" for i in range(40)}


def test_a_shuffled_epoch_reads_nothing_ahead(
    server: FaultServer, objects: Objects, dataset: Any
) -> None:
    batches = [[7, 3], [30, 2], [11, 12], [0, 39], [5, 6], [1, 4]]
    assert read(dataset, *batches) == expected(objects, *batches)
    assert count(server, "media") == 12


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(
        st.one_of(
            st.lists(st.integers(-40, 39), max_size=4),
            st.tuples(st.integers(0, 39), st.integers(1, 4)).map(
                lambda pair: list(range(pair[0], min(40, pair[0] + pair[1])))
            ),
            # Three or more in a row, so that something is ahead.
            st.none(),
        ),
        max_size=12,
    )
)
def test_any_sequence_of_batches_is_what_was_asked_for(
    objects: Objects, dataset: Any, asked: list[list[int] | None]
) -> None:
    last = [0]
    for indices in asked:
        for _ in range(1 if indices is not None else 4):
            now = indices if indices is not None else [i + 1 for i in last if 0 <= i < 39] or [0]
            assert dataset.__getitems__(now) == expected(objects, now)[0]
            last = now or [0]


def test_an_object_put_into_the_list_meanwhile_is_the_one_that_is_read(
    objects: Objects, dataset: Any
) -> None:
    read(dataset, [0], [1], [2])
    dataset.objects[3] = dataset.objects[20]
    assert read(dataset, [3], [4]) == expected(objects, [20], [4])


def test_an_error_ahead_is_raised_by_the_batch_that_it_belongs_to(
    server: FaultServer, objects: Objects, dataset: Any
) -> None:
    name = dataset.objects[4][0]
    server.faults([{"match": {"kind": "media", "path_contains": name}, "action": {"status": 404}}])
    assert read(dataset, [0], [1], [2], [3]) == expected(objects, [0], [1], [2], [3])
    with pytest.raises(headrace.NotFoundError, match=name):
        read(dataset, [4])
    assert read(dataset, [5], [6]) == expected(objects, [5], [6])


def test_threads_that_share_a_dataset_get_what_each_asked_for(
    objects: Objects, dataset: Any
) -> None:
    wrong: list[int] = []
    contents = list(objects.values())

    def run(first: int) -> None:
        for index in range(first, 40):
            if dataset.__getitems__([index]) != [contents[index]]:
                wrong.append(index)

    threads = [threading.Thread(target=run, args=(first,)) for first in (0, 1, 7, 20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_copy_and_a_pickle_of_a_dataset_that_reads_ahead_begin_anew(
    objects: Objects, dataset: Any
) -> None:
    read(dataset, [0], [1], [2])
    for other in (copy.copy(dataset), copy.deepcopy(dataset), pickle.loads(pickle.dumps(dataset))):
        assert read(other, [3], [30]) == expected(objects, [3], [30])
    assert read(dataset, [3]) == expected(objects, [3])


@pytest.mark.parametrize("copied", [False, True])
def test_nothing_of_the_former_bucket_is_handed_out(
    server: FaultServer, objects: Objects, dataset: Any, copied: bool
) -> None:
    server.bucket("two")
    for name, content in objects.items():
        server.put("two", name, b"2" * len(content))
    read(dataset, [0], [1], [2])
    other = copy.copy(dataset) if copied else dataset
    other.bucket_name = "two"
    assert read(other, [3], [4]) == [[b"2" * 12], [b"2" * 15]]


def test_a_forked_process_reads_by_itself(objects: Objects, dataset: Any) -> None:
    read(dataset, [0], [1], [2])
    child = os.fork()
    if child == 0:
        right = read(dataset, [3], [4], [5], [6]) == expected(objects, [3], [4], [5], [6])
        os._exit(0 if right else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert read(dataset, [3], [4]) == expected(objects, [3], [4])


def test_what_is_put_in_place_of_the_download_is_called(
    objects: Objects, dataset: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    read(dataset, [0], [1], [2])
    monkeypatch.setattr(
        mapstyle.dataflux_core.download,
        "dataflux_download_threaded",
        lambda *, objects, **_: [name.encode() for name, _ in objects],
    )
    assert read(dataset, [3]) == [[b"train/003"]]
