"""What goes wrong with dataflux_pytorch 1.4 and does not here: a test for each such behaviour."""

from __future__ import annotations

import json
import multiprocessing.process
import os
import pickle
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler

import headrace
from headrace.compat._objects import grouped
from headrace.compat._retry import Retry
from headrace.compat.dataflux_core import download, fast_list, range_splitter
from headrace.compat.dataflux_pytorch import dataflux_iterable_dataset as iterable
from headrace.compat.dataflux_pytorch import dataflux_mapstyle_dataset as mapstyle
from testing.faultserver.client import FaultServer
from tests.compat.bucket import BUCKET, count, written
from tests.scripts import RunScript
from tests.waiting import wait_until

Objects = dict[str, bytes]


def map_dataset(**config: Any) -> mapstyle.DataFluxMapStyleDataset:
    return mapstyle.DataFluxMapStyleDataset("project", BUCKET, mapstyle.Config(**config))


def iterable_dataset(**config: Any) -> iterable.DataFluxIterableDataset:
    return iterable.DataFluxIterableDataset("project", BUCKET, iterable.Config(**config))


def remove(name: str) -> None:
    headrace.Store(f"gs://{BUCKET}").delete(name)


# ---- nothing is lost silently


@pytest.mark.parametrize("threads", [1, 2])
def test_a_deleted_object_fails_its_batch_and_is_named(
    server: FaultServer, objects: Objects, threads: int
) -> None:
    dataset = map_dataset(threads_per_process=threads)
    remove("train/003")
    with pytest.raises(headrace.NotFoundError, match="train/003"):
        dataset.__getitems__(list(range(10)))
    assert dataset.__getitems__([0, 1, 2]) == [objects[f"train/00{i}"] for i in range(3)]


def test_a_deleted_object_ends_the_loader_and_no_batch_is_short(
    server: FaultServer, objects: Objects
) -> None:
    dataset = map_dataset()
    remove("train/013")
    batches: list[Any] = []
    with pytest.raises(headrace.NotFoundError, match="train/013"):
        batches.extend(DataLoader(dataset, batch_size=10))
    assert batches == [[objects[f"train/00{i}"] for i in range(10)]]


def test_a_deleted_object_ends_an_iteration_after_those_before_it(
    server: FaultServer, objects: Objects
) -> None:
    dataset = iterable_dataset()
    remove("train/035")
    read: list[bytes] = []
    with pytest.raises(headrace.NotFoundError, match="train/035"):
        read.extend(dataset)
    # Read in groups of 32: those of the group that failed are not handed out.
    assert read == list(objects.values())[:32]


def test_errors_cross_a_loaders_workers_with_their_class(
    server: FaultServer, objects: Objects
) -> None:
    dataset = map_dataset()
    remove("train/003")
    with pytest.raises(headrace.NotFoundError, match="train/003"):
        list(DataLoader(dataset, batch_size=10, num_workers=1))


def test_errors_in_helper_functions_are_raised(server: FaultServer, objects: Objects) -> None:
    pairs = [("train/000", 3), ("gone", 3)]
    for function in (
        download.dataflux_download,
        download.dataflux_download_threaded,
        download.dataflux_download_parallel,
    ):
        with pytest.raises(headrace.NotFoundError, match="gone"):
            function("project", BUCKET, pairs)


# ---- no wrong bytes


def test_a_resized_object_leaves_its_neighbours_alone(
    server: FaultServer, objects: Objects
) -> None:
    dataset = map_dataset()
    new = {**objects, "train/004": b"shorter", "train/007": b"longer" * 100}
    for name in ("train/004", "train/007"):
        server.put(BUCKET, name, new[name])
    indices = list(range(len(objects)))
    assert dataset.__getitems__(indices) == list(new.values())
    assert list(iterable_dataset()) == list(new.values())


def test_an_object_resized_after_an_iterations_listing_is_read_whole(
    server: FaultServer, objects: Objects
) -> None:
    dataset = iterable_dataset()
    server.put(BUCKET, "train/004", b"new and longer")
    assert list(dataset) == list({**objects, "train/004": b"new and longer"}.values())


def test_a_flipped_byte_is_read_again(server: FaultServer, objects: Objects) -> None:
    server.faults(
        [
            {
                "match": {"kind": "media", "path_contains": "train/007"},
                "count": 1,
                "action": {"flip_byte": 2},
            }
        ]
    )
    assert map_dataset().__getitems__([6, 7, 8]) == [objects[f"train/00{i}"] for i in (6, 7, 8)]
    assert count(server, "media") == 4


def test_a_byte_that_stays_flipped_is_never_delivered(
    server: FaultServer, objects: Objects
) -> None:
    server.faults(
        [
            {
                "match": {"kind": "media", "path_contains": "train/007"},
                "action": {"flip_byte": 2},
            }
        ]
    )
    with pytest.raises(headrace.CorruptDataError, match="train/007"):
        map_dataset().__getitems__([6, 7, 8])
    with pytest.raises(headrace.CorruptDataError, match="train/007"):
        map_dataset()[7]


def test_a_composite_of_another_length_is_refused_not_cut_wrongly(server: FaultServer) -> None:
    server.put(BUCKET, "composite", b"onetwothree")
    parts = [("one", 3), ("two", 3), ("three", 5)]
    assert download.decompose("project", BUCKET, "composite", parts) == [b"one", b"two", b"three"]
    with pytest.raises(headrace.CorruptDataError, match="11 bytes, its 3 parts have 12"):
        download.decompose("project", BUCKET, "composite", [("one", 4), *parts[1:]])


# ---- the order


def test_order_is_sorted_whatever_the_processs_hash_seed(
    server: FaultServer, objects: Objects, run_script: RunScript
) -> None:
    expected = [[name, len(content)] for name, content in sorted(objects.items())]
    script = """
        import json
        from dataflux_pytorch import dataflux_iterable_dataset as iterable
        from dataflux_pytorch import dataflux_mapstyle_dataset as mapstyle
        for kind in (mapstyle.DataFluxMapStyleDataset, iterable.DataFluxIterableDataset):
            print(json.dumps(list(kind("project", "bucket").objects)))
    """
    printed = run_script(script, PYTHONHASHSEED="1").splitlines()
    assert [json.loads(line) for line in printed] == [expected, expected]
    assert list(map_dataset().objects) == [tuple(pair) for pair in expected]


def test_ranks_of_a_distributed_sampler_see_every_object_once(
    server: FaultServer, objects: Objects
) -> None:
    seen: list[bytes] = []
    for rank in range(8):
        dataset = map_dataset()  # each rank lists by itself
        sampler = DistributedSampler(dataset, num_replicas=8, rank=rank, shuffle=True, seed=3)
        seen += dataset.__getitems__(list(sampler))
    assert sorted(seen) == sorted(objects.values())


# ---- listing


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[multiprocessing.process.BaseProcess]:
    """The processes that the test starts."""
    found: list[multiprocessing.process.BaseProcess] = []
    start = multiprocessing.process.BaseProcess.start

    def noted(process: multiprocessing.process.BaseProcess) -> None:
        found.append(process)
        start(process)

    monkeypatch.setattr(multiprocessing.process.BaseProcess, "start", noted)
    return found


def test_a_small_bucket_is_listed_by_one_request_in_this_process(
    server: FaultServer,
    objects: Objects,
    started: list[multiprocessing.process.BaseProcess],
) -> None:
    assert len(map_dataset(num_processes=16)) == len(objects)
    assert count(server, "list") == 1
    assert started == []


@pytest.mark.parametrize("shape", ["flat", "uuid", "deep", "one_folder", "skewed"])
def test_every_layout_of_names_is_listed_whole(
    server: FaultServer, started: list[multiprocessing.process.BaseProcess], shape: str
) -> None:
    server.synthetic("large", 3000, 10, shape=shape)
    listed = fast_list.ListingController(8, "project", "large").run()
    assert [name for name, _ in listed] == server.names("large")
    assert len(listed) == 3000
    assert started == []


@pytest.mark.parametrize("names", [12_000, 100_000])
def test_flat_names_are_listed_many_pages_at_a_time(server: FaultServer, names: int) -> None:
    # So late that also a busy machine asks for the next pages before the first ones come.
    server.synthetic(
        "large", names, 10, shape="pattern", name_pattern="train/{index:09d}.jpg", list_delay_ms=400
    )
    listed = fast_list.ListingController(1, "project", "large", prefix="train/").run()
    assert len(listed) == names
    assert server.stats()["max_in_flight"] >= (6 if names < 100_000 else 24)
    pages = names / 1000
    assert pages <= count(server, "list") <= pages + 24 + pages / 5


def test_a_listing_takes_less_than_64_bytes_a_name_and_its_pickle_too(server: FaultServer) -> None:
    server.synthetic(
        "large", 50_000, 10, shape="pattern", name_pattern="train/{shard:06d}/{index:09d}.jpg"
    )
    dataset = mapstyle.DataFluxMapStyleDataset("project", "large")
    assert len(pickle.dumps(dataset)) <= 64 * 50_000
    assert dataset.objects[49_999] == (server.names("large")[-1], 10)


@pytest.mark.parametrize(("first", "second"), [("110/b", "110/ba"), ("c", "c/")])
def test_names_that_are_hard_to_split_are_listed(
    server: FaultServer, first: str, second: str
) -> None:
    names = sorted({first, f"{first}{second[-1]}x", f"{second}x", f"{second}y"})
    for name in names:
        server.put(BUCKET, name, b"x")
    assert [name for name, _ in fast_list.ListingController(4, "p", BUCKET).run()] == names


@pytest.mark.parametrize(("start", "end"), [("c", "c/"), ("c", "c"), ("", "\0")])
def test_splitting_an_empty_range_ends_with_no_split(start: str, end: str) -> None:
    assert range_splitter.new_rangesplitter("ab").split_range(start, end, 1) == []


def test_a_missing_bucket_is_told_as_such_by_one_request(server: FaultServer) -> None:
    with pytest.raises(headrace.NotFoundError, match="gs://missing"):
        mapstyle.DataFluxMapStyleDataset("project", "missing")
    assert count(server, "list") == 1


def _list_in_child(endpoint: str, results: Any) -> None:
    os.environ["STORAGE_EMULATOR_HOST"] = endpoint
    results.put(len(map_dataset()))


def test_a_dataset_can_be_made_in_a_daemonic_process(server: FaultServer, objects: Objects) -> None:
    context = multiprocessing.get_context("fork")
    results: Any = context.SimpleQueue()
    child = context.Process(target=_list_in_child, args=(server.url, results), daemon=True)
    child.start()
    child.join(120)
    assert child.exitcode == 0
    assert results.get() == len(objects)


class _ListsInWorker(torch.utils.data.Dataset[int]):
    def __getitem__(self, index: int) -> int:
        return len(map_dataset())

    def __len__(self) -> int:
        return 2


def test_a_dataset_can_be_made_in_a_loaders_worker(server: FaultServer, objects: Objects) -> None:
    (batch,) = DataLoader(_ListsInWorker(), batch_size=2, num_workers=1)
    assert batch.tolist() == [len(objects)] * 2


@pytest.mark.parametrize("make", [map_dataset, iterable_dataset])
def test_each_retry_policy_goes_to_its_own_requests(
    server: FaultServer, objects: Objects, make: Callable[..., Any]
) -> None:
    server.faults([{"match": {"kind": "list"}, "action": {"status": 503}}])
    with pytest.raises(headrace.UnavailableError):
        make(list_retry_config=None, max_listing_retries=1)
    assert count(server, "list") == 1
    server.faults([{"match": {"kind": "media"}, "action": {"status": 503}}])
    dataset = make(download_retry_config=None)
    with pytest.raises(headrace.UnavailableError):
        list(DataLoader(dataset, batch_size=1))
    names = [request["target"] for request in server.log() if request["kind"] == "media"]
    assert len(names) == len(set(names))


def test_a_retry_policy_is_not_changed_by_its_use(server: FaultServer, objects: Objects) -> None:
    from google.api_core.retry import Retry as GoogleRetry

    policy = GoogleRetry(initial=0.01, maximum=0.02, multiplier=1.5, timeout=20)
    before = dict(vars(policy))
    dataset = map_dataset(list_retry_config=policy, download_retry_config=policy)
    assert dataset[0] == objects["train/000"]
    assert vars(policy) == before


# ---- reading: what the bucket sees


@pytest.mark.parametrize("config", [{}, {"disable_compose": True}])
def test_reading_writes_nothing_and_asks_for_no_permission(
    server: FaultServer, objects: Objects, config: dict[str, Any]
) -> None:
    server.put(BUCKET, "train/empty", b"")
    server.put(BUCKET, "train/empty2", b"")
    expected = [*objects.values(), b"", b""]
    loader = DataLoader(map_dataset(**config), batch_size=8, collate_fn=list)
    assert [content for batch in loader for content in batch] == expected
    assert list(iterable_dataset(**config)) == expected
    assert written(server) == []
    assert count(server, "media") == 2 * len(expected)


def test_a_read_only_bucket_will_do(server: FaultServer, objects: Objects) -> None:
    server.bucket(BUCKET, denied_permissions=["storage.objects.create", "storage.objects.delete"])
    assert len(map_dataset().__getitems__(list(range(40)))) == 40
    assert list(iterable_dataset()) == list(objects.values())


def test_groups_never_exceed_their_limits() -> None:
    pairs = [(str(i), size) for i, size in enumerate([900, 900, 100, 0, 0, 2000, 1, 999, 1])]
    groups = list(grouped(pairs, lambda pair: pair[1], max_objects=3, max_bytes=1000))
    assert [[size for _, size in group] for group in groups] == [
        [900],
        [900, 100],  # full: it does not wait for what follows
        [0, 0],
        [2000],
        [1, 999],
        [1],
    ]


def test_an_iteration_that_is_broken_off_leaves_nothing_behind(
    server: FaultServer, objects: Objects
) -> None:
    for content in iterable_dataset():
        assert content == objects["train/000"]
        break
    assert server.names(BUCKET) == sorted(objects)
    assert written(server) == []
    wait_until(lambda: headrace.metrics().in_flight == 0)


def test_connections_are_kept_and_used_again(server: FaultServer, objects: Objects) -> None:
    dataset = map_dataset(threads_per_process=32)
    for _ in range(15):
        dataset.__getitems__(list(range(40)))
    assert count(server, "media") == 600
    used = {request["connection"] for request in server.log() if request["kind"] == "media"}
    assert len(used) <= 40  # as many as were read at a time


@pytest.mark.parametrize("decided", [False, True])
def test_the_memory_of_a_batch_serves_the_next(
    server: FaultServer, run_script: RunScript, decided: bool
) -> None:
    """Else the system clears as many pages for each batch as it has bytes."""
    for i in range(64):
        server.put(BUCKET, f"{i:02d}", bytes([i]) * 300_000)
    script = """
        import resource
        from dataflux_pytorch import dataflux_mapstyle_dataset as mapstyle
        dataset = mapstyle.DataFluxMapStyleDataset("project", "bucket")
        def faults():
            return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for turn in range(8):
            before = faults()
            batch = dataset.__getitems__(list(range(64)))
            assert [each[0] for each in batch] == list(range(64))
            del batch
        print(faults() - before)
    """
    # glibc's own variable, by which a user has decided: this is its default.
    environment = {"MALLOC_TRIM_THRESHOLD_": "131072"} if decided else {}
    faults_of_a_batch = int(run_script(script, **environment))
    assert (faults_of_a_batch > 64 * 5) == decided, faults_of_a_batch


# ---- reading: the process


def test_signal_handlers_stay_the_applications(server: FaultServer, objects: Objects) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    assert len(list(iterable_dataset())) == len(objects)
    download.dataflux_download("project", BUCKET, [("train/000", 3)])
    after = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    assert after == before


def test_ctrl_c_ends_an_iteration_as_keyboard_interrupt(
    server: FaultServer, objects: Objects
) -> None:
    iterator = iter(iterable_dataset())
    next(iterator)
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - the signal arrives at either line
        os.kill(os.getpid(), signal.SIGINT)
        list(iterator)


def test_iterating_in_another_thread_works(server: FaultServer, objects: Objects) -> None:
    dataset = iterable_dataset()
    read: list[bytes] = []
    thread = threading.Thread(target=lambda: read.extend(dataset))
    thread.start()
    thread.join(120)
    assert read == list(objects.values())


def test_retries_end_by_the_policys_time_and_tell_the_object_and_the_status(
    server: FaultServer, objects: Objects
) -> None:
    # The fourth answer asks for more time than is left; nothing else ends it.
    rule = {"match": {"kind": "media"}, "action": {"status": 503}}
    server.faults([rule | {"count": 3}, rule | {"action": {"status": 503, "retry_after_s": 3600}}])
    policy = Retry(initial=0.001, maximum=0.002, multiplier=1.0, timeout=3000)
    with pytest.raises(headrace.TimedOutError, match=r"train/000.*503") as raised:
        map_dataset(download_retry_config=policy)[0]
    assert raised.value.attempts == count(server, "media") == 4


@pytest.mark.parametrize(
    "kind", [mapstyle.DataFluxMapStyleDataset, iterable.DataFluxIterableDataset]
)
def test_a_client_survives_pickling(
    server: FaultServer, objects: Objects, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from google.cloud import storage
    from google.oauth2.credentials import Credentials

    monkeypatch.delenv("STORAGE_EMULATOR_HOST")
    server.auth(["secret"])
    client = storage.Client(
        project="mine",
        credentials=Credentials("secret"),  # type: ignore[no-untyped-call]
        client_options={"api_endpoint": server.url},
    )
    dataset = pickle.loads(pickle.dumps(kind("project", BUCKET, storage_client=client)))
    assert list(dataset) == list(objects.values())
    again = dataset.storage_client
    assert isinstance(again, storage.Client)
    assert (again.project, again._connection.API_BASE_URL) == ("mine", server.url)
