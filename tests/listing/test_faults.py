"""Servers that fail, lie or change their minds while they are listed."""

from __future__ import annotations

import contextlib
import json
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

import headrace
from testing.faultserver.client import FaultServer
from tests.listing.conftest import FAST, OpenStore


def test_failed_pages_are_asked_for_again(server: FaultServer, open_store: OpenStore) -> None:
    # Which requests fail is decided by their number: one page may draw several of these.
    store = open_store(retry=replace(FAST, max_attempts=10))
    server.synthetic("bucket", 50_000, 10, shape="flat")
    server.faults(
        [
            {"match": {"kind": "list"}, "every": 7, "action": {"status": 503}},
            {"match": {"kind": "list"}, "every": 11, "action": "reset"},
        ]
    )
    index = store.index()
    assert [index.name(i) for i in range(len(index))] == server.names("bucket")
    assert sum(rule["fired"] for rule in server.fault_counts()) > 5


def test_a_page_that_keeps_failing_ends_the_listing(
    server: FaultServer, store: headrace.Store
) -> None:
    server.synthetic("bucket", 50_000, 10, shape="flat")
    server.faults([{"match": {"kind": "list"}, "from": 10, "action": {"status": 503}}])
    with pytest.raises(headrace.UnavailableError) as caught:
        store.index()
    assert (caught.value.url, caught.value.attempts) == ("gs://bucket/", 3)
    with pytest.raises(headrace.UnavailableError):
        list(store.list())


def test_json_that_is_cut_is_never_a_listing(server: FaultServer, store: headrace.Store) -> None:
    server.synthetic("bucket", 10_000, 10, shape="flat")
    server.faults(
        [
            {
                "match": {"kind": "list"},
                "from": 2,
                "count": 1,
                "action": {"status": 200, "body": '{"items":[{"name":"0000999"},{"name":"00'},
            }
        ]
    )
    with pytest.raises(headrace.CorruptDataError, match="JSON"):
        store.index()


def test_a_page_token_that_is_refused_is_told(server: FaultServer, store: headrace.Store) -> None:
    server.synthetic("bucket", 3_000, 10, shape="flat")
    with pytest.raises(headrace.InvalidArgumentError, match="pageToken") as caught:
        store.list_page(page_token="no such token")
    assert caught.value.http_status == 400


@pytest.mark.parametrize("pages_in_flight", [1, None])
def test_a_page_that_is_refused_within_a_listing_is_told(
    server: FaultServer, store: headrace.Store, pages_in_flight: int | None
) -> None:
    server.synthetic("bucket", 10_000, 10, shape="flat")
    action = {"status": 400, "message": "Invalid argument: pageToken"}
    server.faults([{"match": {"kind": "list"}, "from": 3, "action": action}])
    for listing in (store.index, lambda **options: list(store.list(**options))):
        with pytest.raises(headrace.InvalidArgumentError, match="pageToken") as caught:
            listing(max_pages_in_flight=pages_in_flight)
        assert (caught.value.url, caught.value.attempts) == ("gs://bucket/", 1)


def test_names_may_come_and_go_meanwhile(server: FaultServer, store: headrace.Store) -> None:
    server.synthetic("bucket", 30_000, 10, shape="flat")
    before = set(server.names("bucket"))
    others = headrace.Store("gs://bucket", endpoint=server.url)
    stop = threading.Event()
    passing: set[str] = set()

    def change() -> None:
        number = 0
        while not stop.is_set():
            number = (number + 7919) % 30_000
            for name in (f"{number:07d}", f"{number:07d}-new"):
                passing.add(name)
                if name.endswith("new"):
                    others.write(name, b"")
                others.delete(name, missing_ok=True)

    changing = threading.Thread(target=change)
    server.latency(1)
    changing.start()
    try:
        listings = [store.index() for _ in range(3)]
    finally:
        stop.set()
        changing.join()
    for index in listings:
        names = [index.name(i) for i in range(len(index))]
        assert names == sorted(set(names))
        assert set(names) - passing == before - passing
        assert set(names) <= before | passing


def test_ctrl_c_ends_a_listing(server: FaultServer, store: headrace.Store) -> None:
    server.synthetic("bucket", 100_000, 10, shape="flat")
    server.faults([{"match": {"kind": "list"}, "from": 20, "action": "stall_head"}])
    seen: list[int] = []

    def progress(names: int, total: None) -> None:
        # Only once nothing comes any more: then Ctrl-C must end a wait.
        if names > 0 and seen and seen[-1] == names:
            signal.raise_signal(signal.SIGINT)
        seen.append(names)

    with pytest.raises(KeyboardInterrupt):
        store.index(progress=progress)
    assert seen
    # What was under way has been let go: its connections are closed.
    until = time.monotonic() + 60
    while headrace.metrics().in_flight and time.monotonic() < until:
        threading.Event().wait(0.001)
    assert headrace.metrics().in_flight == 0


def test_progress_tells_how_many_names_have_arrived(
    server: FaultServer, store: headrace.Store
) -> None:
    server.synthetic("bucket", 20_000, 10, shape="flat")
    server.latency(20)
    seen: list[int] = []
    store.index(progress=lambda names, total: seen.append(names))
    assert seen == sorted(seen)
    assert seen[-1] == 20_000


def test_what_progress_raises_ends_the_listing(server: FaultServer, store: headrace.Store) -> None:
    server.synthetic("bucket", 20_000, 10, shape="flat")

    def progress(names: int, total: None) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        store.index(progress=progress)


# ---- servers that lie


class Liar(BaseHTTPRequestHandler):
    """Lists what `answer(query)` gives: names, and the token of the next page."""

    protocol_version = "HTTP/1.1"
    answer: Any

    def do_GET(self) -> None:
        query = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        names, token = type(self).answer(query)
        page: dict[str, Any] = {"items": [{"name": name, "size": "1"} for name in names]}
        if token:
            page["nextPageToken"] = token
        body = json.dumps(page).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with contextlib.suppress(ConnectionError):  # cancelled
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def liar() -> Iterator[tuple[type[Liar], str]]:
    class Handler(Liar):
        pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield Handler, f"http://127.0.0.1:{server.server_port}"
    headrace.shutdown()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(
    ("names", "token", "sentence"),
    [
        (["a", "c", "b"], "", 'the name "b" after "c"'),
        (["a", "a"], "", 'the name "a" after "a"'),
        (["a\x1b[2J", "a\x07"], "", r'the name "a\\u0007" after "a\\u001b'),
        (["a", "b"], "for ever", 'the name "b" (again|before its start)'),
        ([], "for ever", "followed by itself"),
    ],
)
def test_a_page_that_repeats_or_goes_back_is_corrupt(
    liar: tuple[type[Liar], str], names: list[str], token: str, sentence: str
) -> None:
    handler, url = liar
    handler.answer = staticmethod(
        lambda query: (names if not query.get("startOffset") else names[-1:], token)
    )
    with pytest.raises(headrace.CorruptDataError, match=sentence) as caught:
        headrace.Store("gs://bucket", endpoint=url, retry=FAST).index()
    assert caught.value.url == "gs://bucket/"


def test_a_page_that_is_followed_by_itself_ends_a_listing(liar: tuple[type[Liar], str]) -> None:
    handler, url = liar
    handler.answer = staticmethod(lambda query: ([], "for ever"))
    with pytest.raises(headrace.CorruptDataError, match="followed by itself"):
        list(headrace.Store("gs://bucket", endpoint=url, retry=FAST).list())


def test_a_token_that_skips_names_loses_none(liar: tuple[type[Liar], str]) -> None:
    """Ranges go on from their last name, not from where a token leads."""
    handler, url = liar
    names = [f"{i:03d}" for i in range(100)]

    def answer(query: dict[str, str]) -> tuple[list[str], str]:
        begin = query.get("pageToken") or query.get("startOffset", "")
        end = query.get("endOffset", "~")
        found = [name for name in names if begin <= name < end]
        return found[:10], found[min(15, len(found) - 1)] if len(found) > 10 else ""

    handler.answer = staticmethod(answer)
    store = headrace.Store("gs://bucket", endpoint=url, retry=FAST)
    assert [info.name for info in store.index()] == names
    assert [info.name for info in store.list()] == names


def test_a_server_that_knows_no_offsets_is_told(liar: tuple[type[Liar], str]) -> None:
    handler, url = liar
    handler.answer = staticmethod(lambda query: (["a", "b", "c"], "more"))
    store = headrace.Store("gs://bucket", endpoint=url, retry=FAST)
    with pytest.raises(headrace.CorruptDataError, match='the name "a" before its start'):
        store.index()
    with pytest.raises(headrace.CorruptDataError, match='the name "a" before its start'):
        list(store.list())


def test_names_with_control_characters_are_listed_as_they_are(
    server: FaultServer, open_store: OpenStore
) -> None:
    names = ["\x01", "a\tb", "a\x1b[31mred", "a\x7f", "\u0085", "\u202e", "\U0010ffff"]
    for name in names:
        server.put("bucket", name, b"")
    assert [info.name for info in open_store().list()] == names
    assert [info.name for info in open_store().index()] == names


# ---- no such bucket


@pytest.mark.parametrize("url", ["gs://none", "gs://none/run/1"])
def test_the_bucket_is_named_that_is_missing_whatever_the_service_says(
    server: FaultServer, open_store: OpenStore, url: str
) -> None:
    for told, rules in (
        ("The specified bucket does not exist", []),
        ("there is no such bucket", [{"action": {"status": 404, "body": "Not Found"}}]),
    ):
        server.reset(keep_buckets=True)
        server.faults(rules)
        with pytest.raises(
            headrace.NotFoundError, match=rf"^gs://none: {told}.*HTTP 404"
        ) as caught:
            open_store(url).index("data/")
        assert caught.value.url == "gs://none"
        assert server.stats()["by_kind"] == {"list": 1}  # nothing was asked besides


def test_a_404_of_a_name_is_about_the_object(server: FaultServer, open_store: OpenStore) -> None:
    store = open_store("gs://none/run")
    server.faults([{"action": {"status": 404, "body": "Not Found"}}])
    for read in (store.stat, store.read):
        with pytest.raises(headrace.NotFoundError, match=r"^gs://none/run/a: Not Found"):
            read("a")
    assert server.stats()["by_kind"] == {"get": 1, "media": 1}  # and no look-up of the bucket


def test_a_bucket_that_may_not_be_listed_is_not_called_missing(
    server: FaultServer, open_store: OpenStore
) -> None:
    server.faults([{"match": {"kind": "list"}, "action": {"status": 403}}])
    with pytest.raises(headrace.PermissionDeniedError) as caught:
        open_store().index()
    assert "no such bucket" not in str(caught.value)
