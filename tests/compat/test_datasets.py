"""What programs rely on in the two datasets."""

from __future__ import annotations

import copy
import json
import logging
import pickle
import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from torch.utils.data import DataLoader, default_collate

import headrace
from headrace.compat._objects import ListedObject, ListedObjects
from headrace.compat.dataflux_pytorch import dataflux_iterable_dataset as iterable
from headrace.compat.dataflux_pytorch import dataflux_mapstyle_dataset as mapstyle
from testing.faultserver.client import FaultServer
from tests.compat.bucket import BUCKET, count

Objects = dict[str, bytes]
KINDS = [
    pytest.param(mapstyle.DataFluxMapStyleDataset, id="map"),
    pytest.param(iterable.DataFluxIterableDataset, id="iterable"),
]


def map_dataset(**arguments: Any) -> mapstyle.DataFluxMapStyleDataset:
    return mapstyle.DataFluxMapStyleDataset("project", BUCKET, **arguments)


# ---- the listing


@pytest.mark.parametrize("kind", KINDS)
def test_objects_are_pairs_of_name_and_size(
    server: FaultServer, objects: Objects, kind: Any
) -> None:
    dataset = kind(project_name="project", bucket_name=BUCKET)
    assert dataset.objects == [(name, len(content)) for name, content in objects.items()]
    name, size = dataset.objects[3]
    assert (name, size) == ("train/003", 12)
    assert dataset.objects[-1][0] == "train/039"
    assert count(server, "list") == 1


@pytest.mark.parametrize("kind", KINDS)
def test_composites_folders_and_other_storage_classes_are_left_out(
    server: FaultServer, kind: Any
) -> None:
    for name in ("a", "empty", "folder/", "folder/b", "dataflux-composed-objects/x"):
        server.put(BUCKET, name, b"" if name == "empty" else b"x")
    for storage_class in ("NEARLINE", "COLDLINE", "ARCHIVE"):
        server.put(BUCKET, storage_class, b"x", storageClass=storage_class)
    dataset = kind("project", BUCKET)
    assert dataset.objects == [("a", 1), ("empty", 0), ("folder/b", 1)]
    assert list(dataset) == [b"x", b"", b"x"]


@pytest.mark.parametrize(
    ("prefix", "names"),
    [
        (None, ["a/1", "ab", "b"]),
        ("", ["a/1", "ab", "b"]),
        ("a", ["a/1", "ab"]),
        ("a/", ["a/1"]),
        ("none", []),
        ("dataflux-composed-objects/", []),
    ],
)
def test_prefix_is_a_plain_beginning_of_names(
    server: FaultServer, prefix: str | None, names: list[str]
) -> None:
    for name in ("a/1", "ab", "b", "dataflux-composed-objects/x"):
        server.put(BUCKET, name, b"x")
    dataset = map_dataset(config=mapstyle.Config(prefix=prefix))
    assert [name for name, _ in dataset.objects] == names
    assert len(dataset) == len(names)


def test_config_may_be_changed_until_it_is_used(server: FaultServer, objects: Objects) -> None:
    config = mapstyle.Config()
    config.prefix = "train/00"
    config.max_composite_object_size = 0
    config.num_processes = 1
    assert len(map_dataset(config=config)) == 10


def test_the_maps_config_will_do_for_the_iterable(server: FaultServer, objects: Objects) -> None:
    config = mapstyle.Config(prefix="train/00")
    assert len(list(iterable.DataFluxIterableDataset("project", BUCKET, config))) == 10


def test_a_config_written_for_the_original_will_do(server: FaultServer, objects: Objects) -> None:
    config = SimpleNamespace(**vars(mapstyle.Config(prefix="train/00")))
    assert len(map_dataset(config=config)) == 10


@pytest.mark.parametrize("prefix", [b"train/", 3, "train/\ud800"])
def test_a_prefix_that_is_no_text_is_refused_at_once(
    server: FaultServer, caplog: pytest.LogCaptureFixture, prefix: Any
) -> None:
    with pytest.raises(headrace.InvalidArgumentError, match="prefix is"):
        map_dataset(config=mapstyle.Config(prefix=prefix))
    assert caplog.messages == []


@pytest.mark.parametrize("module", [mapstyle, iterable])
def test_a_listing_that_fails_is_made_again_and_each_error_is_logged(
    server: FaultServer, objects: Objects, module: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server.faults([{"match": {"kind": "list"}, "count": 2, "action": {"status": 503}}])
    kind = module.DatafluxMapStyleDataset if module is mapstyle else module.DatafluxIterableDataset
    with caplog.at_level(logging.ERROR):
        dataset = kind("project", BUCKET, module.Config(list_retry_config=None))
    assert len(dataset.objects) == len(objects)
    assert count(server, "list") == 3
    assert len(caplog.records) == 2
    assert all("503" in record.getMessage() for record in caplog.records)


def test_the_last_error_of_a_listing_is_raised_itself(
    server: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = [RuntimeError("first"), RuntimeError("second")]

    class Controller:
        def __init__(self, **arguments: Any) -> None:
            self.client = None

        def run(self) -> Any:
            raise errors.pop(0)

    last = errors[1]
    monkeypatch.setattr(mapstyle.dataflux_core.fast_list, "ListingController", Controller)
    with pytest.raises(RuntimeError) as raised:
        map_dataset(config=mapstyle.Config(max_listing_retries=2))
    assert raised.value is last


def test_listing_no_time_at_all_is_refused(server: FaultServer) -> None:
    with pytest.raises(ValueError, match="max_listing_retries is 0"):
        map_dataset(config=mapstyle.Config(max_listing_retries=0))


def test_what_is_put_in_place_of_the_download_is_called(
    objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = map_dataset()
    monkeypatch.setattr(
        mapstyle.dataflux_core.download,
        "dataflux_download_threaded",
        lambda *, objects, **_: [name.encode() for name, _ in objects],
    )
    assert dataset.__getitems__([3]) == [b"train/003"]


# ---- reading


def test_items_are_bytes_by_index_from_both_ends(server: FaultServer, objects: Objects) -> None:
    dataset = map_dataset()
    contents = list(objects.values())
    assert dataset[0] == contents[0]
    assert type(dataset[0]) is bytes
    assert dataset[-1] == contents[-1]
    assert dataset[np.int64(7)] == contents[7]
    assert [each for each in dataset] == contents  # noqa: C416 - the old sequence protocol
    with pytest.raises(IndexError):
        dataset[len(contents)]
    with pytest.raises(TypeError, match="no slices"):
        dataset[0:2]
    for index in ("0", 1.5, None):
        with pytest.raises(TypeError):
            dataset[index]


def test_a_batch_comes_in_the_order_of_its_indices(server: FaultServer, objects: Objects) -> None:
    dataset = map_dataset(data_format_fn=len)
    contents = list(objects.values())
    order = list(range(40)) * 2
    random.Random(5).shuffle(order)
    assert dataset.__getitems__(order) == [len(contents[i]) for i in order]
    assert dataset.__getitems__([]) == []
    assert dataset.__getitems__([-1]) == [len(contents[-1])]


def test_a_loader_asks_once_for_each_batch(server: FaultServer, objects: Objects) -> None:
    batches: list[list[int]] = []

    class Counting(mapstyle.DataFluxMapStyleDataset):
        def __getitems__(self, indices: Any) -> list[Any]:
            batches.append(list(indices))
            return super().__getitems__(indices)

    loader = DataLoader(Counting("project", BUCKET, data_format_fn=len), batch_size=16)
    assert [len(batch) for batch in loader] == [16, 16, 8]
    assert [len(batch) for batch in batches] == [16, 16, 8]
    assert count(server, "media") == 40


def test_samples_of_equal_size_make_a_tensor(server: FaultServer) -> None:
    for i in range(4):
        server.put(BUCKET, str(i), bytes([i]) * 8)
    dataset = map_dataset(data_format_fn=lambda data: np.array(list(data)))
    (batch,) = DataLoader(dataset, batch_size=4)
    assert batch.tolist() == [[i] * 8 for i in range(4)]
    assert default_collate([dataset[1]]).tolist() == [[1] * 8]


@pytest.mark.parametrize(
    ("count_", "workers", "shares"),
    [(5, 4, [[0, 1], [2, 3], [4], []]), (4, 2, [[0, 1], [2, 3]]), (1, 2, [[0], []])],
)
def test_workers_share_an_iteration_in_contiguous_slices(
    server: FaultServer,
    monkeypatch: pytest.MonkeyPatch,
    count_: int,
    workers: int,
    shares: list[list[int]],
) -> None:
    for i in range(count_):
        server.put(BUCKET, str(i), b"%d" % i)
    dataset = iterable.DataFluxIterableDataset("project", BUCKET, data_format_fn=int)
    assert list(dataset) == list(range(count_))
    for worker, share in enumerate(shares):
        info = type("Info", (), {"id": worker, "num_workers": workers})
        monkeypatch.setattr("torch.utils.data.get_worker_info", lambda info=info: info)
        assert list(dataset) == share


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_sees_every_object_once(
    server: FaultServer, objects: Objects, kind: Any, workers: int
) -> None:
    loader = DataLoader(kind("project", BUCKET), batch_size=7, num_workers=workers)
    assert sorted(content for batch in loader for content in batch) == sorted(objects.values())
    assert sorted(content for batch in loader for content in batch) == sorted(objects.values())


def test_subclasses_iterate_over_what_the_dataset_keeps(
    server: FaultServer, objects: Objects
) -> None:
    class EverySecond(iterable.DataFluxIterableDataset):
        def __iter__(self) -> Any:
            for content in iterable.dataflux_core.download.dataflux_download_lazy(
                project_name=self.project_name,
                bucket_name=self.bucket_name,
                objects=self.objects[::2],
                storage_client=self.storage_client,
                dataflux_download_optimization_params=self.dataflux_download_optimization_params,
                retry_config=self.config.download_retry_config,
            ):
                yield self.data_format_fn(content)

    assert list(EverySecond("project", BUCKET)) == list(objects.values())[::2]


def test_reads_of_a_listing_are_pinned_and_need_no_question(
    server: FaultServer, objects: Objects
) -> None:
    dataset = map_dataset()
    dataset.__getitems__([1, 2, 3])
    targets = [request["target"] for request in server.log() if request["kind"] == "media"]
    assert len(targets) == 3
    assert all("ifGenerationMatch" in target for target in targets)


def test_gzip_objects_come_decompressed_as_from_googles_client(server: FaultServer) -> None:
    import gzip

    stored = gzip.compress(b"text" * 100)
    server.put(BUCKET, "a.txt", stored, contentEncoding="gzip")
    dataset = map_dataset()
    assert dataset.objects == [("a.txt", len(stored))]
    assert [dataset[0], *dataset.__getitems__([0])] == [b"text" * 100] * 2


# ---- joining on the server


def read_all(dataset: Any) -> list[bytes]:
    """Everything, in one batch where there are batches."""
    if isinstance(dataset, mapstyle.DataFluxMapStyleDataset):
        return dataset.__getitems__(range(len(dataset)))
    return list(dataset)


def joined(server: FaultServer) -> tuple[int, int, int]:
    """How many composites were made, how many reads there were, and what is left."""
    headrace.shutdown()
    left = server.names(BUCKET, "dataflux-composed-objects/")
    return count(server, "compose"), count(server, "media"), len(left)


@pytest.mark.parametrize("module", [mapstyle, iterable])
def test_small_objects_are_joined_on_request_only(
    server: FaultServer, objects: Objects, module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = module.DatafluxMapStyleDataset if module is mapstyle else module.DatafluxIterableDataset

    def read(**options: Any) -> tuple[int, int, int]:
        headrace.shutdown()
        server.reset(keep_buckets=True)
        dataset = kind("project", BUCKET, module.Config(**options))
        assert read_all(dataset) == [*objects.values()]
        return joined(server)

    directly = (0, 40, 0)
    assert read() == directly
    monkeypatch.setenv("HEADRACE_COMPOSE", "1")
    assert read() == (2, 2, 0)
    # 40 objects of 2,460 bytes together, the largest of 120.
    composes, reads, left = read(max_composite_object_size=600)
    assert (composes == reads, left) == (True, 0)
    assert 5 <= composes <= 7
    assert read(disable_compose=True) == directly


def test_composites_are_deleted_when_an_iteration_is_broken_off(
    server: FaultServer, objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_COMPOSE", "1")
    dataset = iterable.DataFluxIterableDataset("project", BUCKET)
    iterator = iter(dataset)
    assert next(iterator) == objects["train/000"]
    iterator.close()
    assert joined(server)[2] == 0


@pytest.mark.parametrize("module", [mapstyle, iterable])
def test_an_account_that_must_not_join_is_told_so_before_anything_is_listed(
    server: FaultServer, objects: Objects, module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = module.DatafluxMapStyleDataset if module is mapstyle else module.DatafluxIterableDataset
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage

    client = storage.Client(
        project="project",
        credentials=AnonymousCredentials(),
        client_options={"api_endpoint": server.url},
    )
    server.bucket(BUCKET, denied_permissions=["storage.objects.delete"])
    # Who does not ask for it is not asked.
    assert read_all(kind("project", BUCKET, storage_client=client)) == [*objects.values()]
    monkeypatch.setenv("HEADRACE_COMPOSE", "1")
    dataset = kind("project", BUCKET, module.Config(disable_compose=True), storage_client=client)
    assert read_all(dataset) == [*objects.values()]
    assert (count(server, "iam"), count(server, "list")) == (0, 2)
    with pytest.raises(PermissionError, match=r"storage\.objects\.delete.*disable_compose"):
        kind("project", BUCKET, storage_client=client)
    assert (count(server, "iam"), count(server, "list")) == (1, 2)
    server.bucket(BUCKET, denied_permissions=[])
    dataset = kind("project", BUCKET, storage_client=client)
    assert read_all(dataset) == [*objects.values()]
    assert joined(server)[::2] == (2, 0)


def test_without_permission_and_unasked_objects_are_read_directly_and_that_is_said(
    server: FaultServer, objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_COMPOSE", "1")
    refusal = {"status": 403, "reason": "forbidden", "message": "no create access"}
    server.faults([{"match": {"kind": "compose"}, "action": refusal}])
    dataset = map_dataset()
    with pytest.warns(RuntimeWarning, match="no create access"):
        assert read_all(dataset) == [*objects.values()]
    assert read_all(dataset) == [*objects.values()]


@pytest.mark.parametrize(
    "name",
    ["dataflux_download", "dataflux_download_threaded", "dataflux_download_parallel"],
)
def test_downloads_join_on_request_unless_their_parameters_forbid_it(
    server: FaultServer, objects: Objects, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headrace.compat.dataflux_core import download

    dataset = map_dataset()
    monkeypatch.setenv("HEADRACE_COMPOSE", "1")
    for max_bytes, expected in ((10_000, (2, 2, 0)), (0, (0, 40, 0))):
        headrace.shutdown()
        server.reset(keep_buckets=True)
        params = download.DataFluxDownloadOptimizationParams(max_bytes)
        contents = getattr(download, name)(
            "project",
            BUCKET,
            dataset.objects,
            dataflux_download_optimization_params=params,
        )
        assert contents == [*objects.values()]
        assert joined(server) == expected


# ---- crossing to other processes


@pytest.mark.parametrize("kind", KINDS)
def test_a_dataset_pickles_with_its_listing(
    server: FaultServer, objects: Objects, kind: Any
) -> None:
    dataset = kind("project", BUCKET, data_format_fn=len)
    for again in (pickle.loads(pickle.dumps(dataset)), copy.copy(dataset), copy.deepcopy(dataset)):
        assert type(again) is kind
        assert again.objects == dataset.objects
        assert again.storage_client is None
        assert list(again) == [len(content) for content in objects.values()]
    assert count(server, "list") == 1


def test_state_hooks_leave_the_client_out_and_make_a_default_one(
    server: FaultServer, objects: Objects
) -> None:
    from google.cloud import storage

    dataset = map_dataset()
    state = dataset.__getstate__()
    assert state == {k: v for k, v in vars(dataset).items() if k != "storage_client"}
    dataset.__setstate__(state)
    assert isinstance(dataset.storage_client, storage.Client)


# ---- the listing as a list


def listed() -> ListedObjects:
    return ListedObjects([headrace.ObjectInfo(f"n{i}", i, generation=str(i)) for i in range(6)])


PAIRS = [(f"n{i}", i) for i in range(6)]


def test_a_listing_is_read_like_a_list_of_pairs() -> None:
    pairs = listed()
    assert pairs == PAIRS
    assert pairs == listed()
    assert pairs != PAIRS[1:]
    assert pairs != 3
    assert list(pairs) == PAIRS
    assert pairs[1:3] == PAIRS[1:3]
    assert pairs[::-1] == PAIRS[::-1]
    assert pairs[-2] == PAIRS[-2]
    assert ("n3", 3) in pairs
    assert pairs.index(("n3", 3)) == 3
    assert pairs + PAIRS == PAIRS * 2
    assert PAIRS + pairs == PAIRS * 2
    assert pairs * 2 == 2 * pairs == PAIRS * 2
    assert sorted(pairs, reverse=True) == PAIRS[::-1]
    assert repr(pairs) == repr(PAIRS)
    assert json.loads(json.dumps(pairs[0])) == ["n0", 0]
    assert {pairs[0]} == {("n0", 0)}
    with pytest.raises(IndexError):
        pairs[6]


def test_a_listing_can_be_changed_like_a_list() -> None:
    pairs = listed()
    random.Random(1).shuffle(pairs)
    assert sorted(pairs) == PAIRS
    assert pairs != PAIRS
    pairs.sort(key=lambda pair: -pair[1])
    assert pairs == PAIRS[::-1]
    del pairs[0]
    pairs.append(("x", 1))
    pairs[0] = ("y", 2)
    pairs += [("z", 3)]
    assert pairs == [("y", 2), *PAIRS[3::-1], ("x", 1), ("z", 3)]
    assert pairs[1:3] == PAIRS[3:1:-1]
    assert len(pairs) == 7


def test_pairs_keep_what_the_listing_said() -> None:
    pair = pickle.loads(pickle.dumps(listed()))[4]
    assert isinstance(pair, ListedObject)
    assert pair.info.generation == "4"
    assert pickle.loads(pickle.dumps(pair)).info == pair.info
