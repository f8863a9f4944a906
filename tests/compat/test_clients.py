"""What a ``storage_client`` does: Google's hands itself over, any other is used."""

from __future__ import annotations

import pickle
from typing import Any
from unittest import mock

import pytest
from google.api_core.client_info import ClientInfo
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage
from google.oauth2.credentials import Credentials
from torch.utils.data import DataLoader

import headrace
from headrace.compat._clients import settings_of
from headrace.compat.dataflux_core import download, fast_list, user_agent
from headrace.compat.dataflux_pytorch import dataflux_iterable_dataset as iterable
from headrace.compat.dataflux_pytorch import dataflux_mapstyle_dataset as mapstyle
from testing.faultserver.client import FaultServer
from tests.compat.bucket import BUCKET

Objects = dict[str, bytes]
KINDS = [
    pytest.param(mapstyle.DataFluxMapStyleDataset, id="map"),
    pytest.param(iterable.DataFluxIterableDataset, id="iterable"),
]


@pytest.fixture
def client(
    server: FaultServer, objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> storage.Client:
    """Google's client for a server that nothing in the environment tells of."""
    monkeypatch.delenv("STORAGE_EMULATOR_HOST")
    server.auth(["secret"])
    return storage.Client(
        project="mine",
        credentials=Credentials("secret"),  # type: ignore[no-untyped-call]
        client_options={"api_endpoint": server.url},
    )


# ---- Google's client


@pytest.mark.parametrize("kind", KINDS)
def test_googles_client_hands_account_and_endpoint_to_the_engine(
    server: FaultServer, objects: Objects, client: storage.Client, kind: Any
) -> None:
    dataset = kind("project", BUCKET, storage_client=client)
    assert list(dataset) == list(objects.values())
    assert dataset.storage_client is client
    requests = server.log()
    assert {request["headers"]["authorization"] for request in requests} == {"Bearer secret"}
    assert all(request["headers"]["user-agent"].startswith("headrace/") for request in requests)


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        (mapstyle.DataFluxMapStyleDataset, "fork"),
        (mapstyle.DataFluxMapStyleDataset, "spawn"),
        (mapstyle.DataFluxMapStyleDataset, "forkserver"),
        (iterable.DataFluxIterableDataset, "fork"),
        (iterable.DataFluxIterableDataset, "forkserver"),
    ],
)
def test_googles_client_reaches_workers_by_every_start_method(
    server: FaultServer, objects: Objects, client: storage.Client, kind: Any, method: str
) -> None:
    dataset = kind("project", BUCKET, storage_client=client)
    loader = DataLoader(
        dataset, batch_size=40, num_workers=1, multiprocessing_context=method, collate_fn=list
    )
    (batch,) = loader
    assert batch == list(objects.values())


def test_every_function_of_the_library_takes_googles_client(
    objects: Objects, client: storage.Client
) -> None:
    controller = fast_list.ListingController(1, "project", BUCKET)
    controller.client = client
    pairs = controller.run()
    expected = list(objects.values())
    params = download.DataFluxDownloadOptimizationParams(100)
    arguments = ("project", BUCKET, pairs, client, params)
    assert download.dataflux_download(*arguments) == expected
    assert download.dataflux_download_threaded(*arguments, threads=3) == expected
    assert download.dataflux_download_parallel(*arguments, parallelization=2) == expected
    assert list(download.dataflux_download_lazy(*arguments)) == expected
    assert download.download_single(client, BUCKET, "train/005") == expected[5]


def test_compose_is_googles_own_call(server: FaultServer, objects: Objects) -> None:
    pairs = [("train/001", 6), ("train/002", 9)]
    blob = download.compose("project", BUCKET, "composite", pairs)
    assert isinstance(blob, storage.Blob)
    assert server.get(BUCKET, "composite") == b"001001002002002"
    assert download.decompose("project", BUCKET, "composite", pairs) == [
        b"001001",
        b"002002002",
    ]
    download.clean_composed_object(blob)
    assert "composite" not in server.names(BUCKET)
    download.clean_composed_object(blob)  # which fails, and is only logged
    with pytest.raises(ValueError, match="32 objects allowed to compose, received 33 objects"):
        download.compose("project", BUCKET, "composite", pairs * 16 + pairs[:1])


def test_an_anonymous_client_sends_no_token(server: FaultServer, objects: Objects) -> None:
    client = storage.Client(
        project="mine",
        credentials=AnonymousCredentials(),  # type: ignore[no-untyped-call]
        client_options={"api_endpoint": server.url},
    )
    assert download.download_single(client, BUCKET, "train/001") == objects["train/001"]
    assert all("authorization" not in request["headers"] for request in server.log())


def test_a_client_with_a_session_of_the_users_own_is_used_itself(client: storage.Client) -> None:
    assert settings_of(client) is not None
    client._http.headers["x"] = "y"  # Google's own session, made when first asked for
    assert settings_of(client) is not None
    theirs = storage.Client(
        project="mine",
        credentials=AnonymousCredentials(),  # type: ignore[no-untyped-call]
        _http=mock.Mock(),
    )
    assert settings_of(theirs) is None
    assert settings_of(mock.Mock(spec=storage.Client)) is None


def test_the_user_agent_is_put_in_front_once() -> None:
    client = storage.Client(
        project="mine",
        credentials=AnonymousCredentials(),  # type: ignore[no-untyped-call]
        client_info=ClientInfo(user_agent="mine/2"),  # type: ignore[no-untyped-call]
    )
    user_agent.add_dataflux_user_agent(client)
    user_agent.add_dataflux_user_agent(client)
    assert client._connection.user_agent.startswith("dataflux/1.0 mine/2")
    assert client._connection.user_agent.count("dataflux") == 1


# ---- any other


class Blob:
    def __init__(self, name: str, content: bytes, storage_class: str = "STANDARD") -> None:
        self.name, self.content, self.storage_class = name, content, storage_class
        self.size = len(content)

    def download_as_bytes(self, retry: object = None) -> bytes:
        if self.content == b"broken":
            raise OSError(f"{self.name} is broken")
        return self.content

    def compose(self, sources: list[Blob], retry: object = None) -> None:
        self.content = b"".join(source.content for source in sources)


class Bucket:
    def __init__(self) -> None:
        self.blobs: dict[str, Blob] = {}

    def blob(self, name: str) -> Blob:
        return self.blobs.setdefault(name, Blob(name, b""))

    def list_blobs(
        self, start_offset: str = "", end_offset: str = "", prefix: str = "", retry: object = None
    ) -> list[Blob]:
        return [
            blob
            for name, blob in self.blobs.items()
            if name.startswith(prefix)
            and name >= start_offset
            and (not end_offset or name < end_offset)
        ]


class Client:
    """As small as a stand-in for Google's client can be."""

    def __init__(self) -> None:
        self.buckets: dict[str, Bucket] = {}

    def bucket(self, name: str) -> Bucket:
        return self.buckets.setdefault(name, Bucket())


@pytest.fixture
def fake(server: FaultServer) -> Client:
    client = Client()
    bucket = client.bucket(BUCKET)
    for name in ("b", "c/", "a", "dataflux-composed-objects/x", "d"):
        bucket.blobs[name] = Blob(name, name.encode() * 3)
    bucket.blobs["e"] = Blob("e", b"x", "ARCHIVE")
    return client


@pytest.mark.parametrize("kind", KINDS)
def test_another_client_is_used_itself(server: FaultServer, fake: Client, kind: Any) -> None:
    dataset = kind("project", BUCKET, storage_client=fake)
    assert dataset.objects == [("a", 3), ("b", 3), ("d", 3)]
    assert list(dataset) == [b"aaa", b"bbb", b"ddd"]
    assert list(DataLoader(dataset, batch_size=3)) == [[b"aaa", b"bbb", b"ddd"]]
    assert server.log() == []


@pytest.mark.parametrize("kind", KINDS)
def test_another_client_crosses_to_workers_by_its_own_pickle(fake: Client, kind: Any) -> None:
    dataset = pickle.loads(pickle.dumps(kind("project", BUCKET, storage_client=fake)))
    assert type(dataset.storage_client) is Client
    assert list(dataset) == [b"aaa", b"bbb", b"ddd"]


@pytest.mark.parametrize("threads", [1, 4])
def test_another_clients_errors_are_raised(fake: Client, threads: int) -> None:
    fake.bucket(BUCKET).blobs["b"] = Blob("b", b"broken")
    config = mapstyle.Config(threads_per_process=threads)
    dataset = mapstyle.DataFluxMapStyleDataset("project", BUCKET, config, storage_client=fake)
    assert dataset.__getitems__([0, 2, 0]) == [b"aaa", b"ddd", b"aaa"]
    with pytest.raises(OSError, match="b is broken"):
        dataset.__getitems__([0, 1, 2])
    with pytest.raises(OSError, match="b is broken"):
        dataset[1]


@pytest.mark.parametrize("count", [1, 2, 40])
def test_another_client_reads_in_order_whatever_the_threads(fake: Client, count: int) -> None:
    bucket = fake.bucket("other")
    pairs = [(f"{i:03d}", 3) for i in range(100)]
    for name, _ in pairs:
        bucket.blobs[name] = Blob(name, name.encode())
    expected = [name.encode() for name, _ in pairs]
    for function in (download.dataflux_download_threaded, download.dataflux_download_parallel):
        assert function("project", "other", pairs, fake, None, count) == expected
    assert list(download.dataflux_download_lazy("project", "other", pairs, fake)) == expected


def test_another_client_reads_one_by_one_whatever_is_asked_for(
    fake: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_COMPOSE", "1")
    params = download.DataFluxDownloadOptimizationParams(1000)
    contents = download.dataflux_download("project", BUCKET, [("a", 3), ("b", 3)], fake, params)
    assert contents == download.dataflux_download("project", BUCKET, [("a", 3), ("b", 3)], fake)
    dataset = mapstyle.DataFluxMapStyleDataset("project", BUCKET, storage_client=fake)
    assert dataset.__getitems__([0, 1]) == contents


def test_another_client_composes_by_itself(fake: Client) -> None:
    blob = download.compose("project", BUCKET, "ab", [("a", 3), ("b", 3)], fake)
    assert blob.content == b"aaabbb"
    assert download.decompose("project", BUCKET, "ab", [("a", 3), ("b", 3)], fake) == [
        b"aaa",
        b"bbb",
    ]


def test_a_bucket_name_that_cannot_be_is_refused(server: FaultServer) -> None:
    for name in ("", "gs://bucket", "bucket/folder", "bucket/../other", None, 5, b"bucket"):
        with pytest.raises(headrace.InvalidArgumentError, match="the bucket's name is"):
            mapstyle.DataFluxMapStyleDataset("project", name)  # type: ignore[arg-type]
    assert server.log() == []
