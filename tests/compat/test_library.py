"""Listing, retry policies, errors and splitting below the datasets."""

from __future__ import annotations

import io
import pickle
import queue
from typing import Any

import google.api_core.exceptions
import pytest
from google.api_core.retry import Retry as GoogleRetry
from google.cloud.storage.retry import ConditionalRetryPolicy
from hypothesis import given
from hypothesis import strategies as st

import headrace
from headrace.compat._google_errors import as_google_raises
from headrace.compat._retry import DATASET_RETRY, LIBRARY_RETRY, Retry, engine_options
from headrace.compat.dataflux_core import download, fast_list, range_splitter
from testing.faultserver.client import FaultServer
from tests.compat.bucket import BUCKET, count, written

Objects = dict[str, bytes]


# ---- listing

# What else there is, what is asked for, and the names that are listed of it.
FILTERS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "default": ({}, ["a", "p/file", "p/zero", "z"]),
    "with composites": (
        {"skip_compose": False},
        ["a", "dataflux-composed-objects/c", "p/file", "p/zero", "z"],
    ),
    "prefix": ({"prefix": "p/"}, ["p/file", "p/zero"]),
    "composites as prefix": ({"prefix": "dataflux-composed-objects/"}, []),
    "folders": ({"list_directory_objects": True}, ["a", "p/", "p/file", "p/zero", "z"]),
    "classes": (
        {"allowed_storage_classes": ["ARCHIVE", "STANDARD"]},
        ["a", "archived", "p/file", "p/zero", "z"],
    ),
    "only a class": ({"allowed_storage_classes": ["ARCHIVE"]}, ["archived"]),
    "range": ({"start_range": "p/file", "end_range": "z"}, ["p/file", "p/zero"]),
}

QUEUES = [
    "send_work_stealing_needed_queue",
    "heartbeat_queue",
    "direct_work_available_queue",
    "idle_queue",
    "unidle_queue",
    "results_queue",
    "metadata_queue",
    "error_queue",
]


@pytest.fixture
def mixed(server: FaultServer) -> None:
    for name in ("a", "p/", "p/file", "p/zero", "dataflux-composed-objects/c", "z"):
        server.put(BUCKET, name, b"" if name in ("p/", "p/zero") else b"x" * 10)
    server.put(BUCKET, "archived", b"x" * 10, storageClass="ARCHIVE")


@pytest.mark.parametrize("case", FILTERS)
def test_a_worker_lists_what_the_filters_leave(mixed: None, case: str) -> None:
    options, names = FILTERS[case]
    options = {"start_range": "", "end_range": "", **options}
    queues = {name: queue.Queue[Any]() for name in QUEUES}
    queues["direct_work_available_queue"].put((None, None))
    fast_list.ListWorker("worker", "project", BUCKET, **queues, **options).run()
    sizes = {"p/": 0, "p/zero": 0}
    assert queues["results_queue"].get_nowait() == {(name, sizes.get(name, 10)) for name in names}
    assert queues["metadata_queue"].get_nowait() == ("worker", len(names))
    assert queues["error_queue"].empty()


def test_a_worker_goes_on_with_the_ranges_it_is_given(mixed: None) -> None:
    results: queue.Queue[Any] = queue.Queue()
    work: queue.Queue[Any] = queue.Queue()
    others = [queue.Queue[Any]() for _ in range(6)]
    work.put(("p/zero", ""))
    work.put((None, None))
    asking, heartbeat, idle, unidle, metadata, errors = others
    fast_list.run_list_worker(
        "w", "p", BUCKET, asking, heartbeat, work, idle, unidle, results, metadata, errors, "", "b"
    )
    assert [results.get_nowait() for _ in range(2)] == [
        {("a", 10)},
        {("p/zero", 0), ("z", 10)},
    ]
    assert unidle.qsize() == 1
    assert asking.qsize() == 2


def test_a_workers_error_goes_to_its_queue(server: FaultServer) -> None:
    queues = [queue.Queue[Any]() for _ in range(8)]
    fast_list.run_list_worker("w", "p", "missing", *queues, "", "")  # type: ignore[arg-type]
    assert isinstance(queues[7].get_nowait(), headrace.NotFoundError)
    assert queues[5].empty()


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, ["a", "p/file", "p/zero", "z"]),
        ({"skip_compose": False, "prefix": "d"}, ["dataflux-composed-objects/c"]),
        ({"allowed_storage_classes": ["ARCHIVE"]}, ["archived"]),
        ({"prefix": None}, ["a", "p/file", "p/zero", "z"]),
    ],
)
def test_the_controller_lists_what_the_filters_leave(
    mixed: None, options: dict[str, Any], names: list[str]
) -> None:
    controller = fast_list.ListingController(3, "project", BUCKET, True, **options)
    assert [name for name, _ in controller.run()] == names


def test_a_prefix_is_taken_off_the_front() -> None:
    assert fast_list.remove_prefix("ab/c", "ab/") == "c"
    assert fast_list.remove_prefix("ab/c", "b/") == "ab/c"


# ---- downloads


def test_downloads_come_in_the_order_that_was_asked_for(
    server: FaultServer, objects: Objects
) -> None:
    pairs = [(f"train/{i:03d}", 0) for i in (5, 3, 5, 39, 0)]
    expected = [objects[name] for name, _ in pairs]
    assert download.dataflux_download("project", BUCKET, pairs) == expected
    results: queue.Queue[list[bytes]] = queue.Queue()
    download.df_download_thread(results, "project", BUCKET, pairs)
    assert results.get_nowait() == expected
    assert download.dataflux_download("project", BUCKET, []) == []
    assert written(server) == []


def test_a_lazy_download_starts_with_its_first_object(
    server: FaultServer, objects: Objects
) -> None:
    lazy = download.dataflux_download_lazy("project", BUCKET, [("train/001", 6)])
    assert count(server, "media") == 0
    assert next(lazy) == objects["train/001"]
    with pytest.raises(StopIteration):
        next(lazy)


def test_the_signal_handler_deletes_what_it_is_told_and_exits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deleted = []

    class Composite:
        def delete(self, retry: object) -> None:
            deleted.append(self)

    with pytest.raises(SystemExit):
        download.term_signal_handler(2, None)
    monkeypatch.setattr(download, "current_composed_object", Composite())
    with pytest.raises(SystemExit) as left:
        download.term_signal_handler(2, None)
    assert left.value.code == 0
    assert len(deleted) == 1


# ---- retry policies


@pytest.mark.parametrize("kind", [GoogleRetry, Retry])
def test_a_policys_waits_and_time_go_to_the_engine(kind: Any) -> None:
    policy = kind(initial=0.5, maximum=7.0, multiplier=1.5, timeout=33.0)
    retry, timeout = engine_options(policy)
    assert (retry.initial_backoff_s, retry.max_backoff_s, retry.backoff_multiplier) == (
        0.5,
        7.0,
        1.5,
    )
    assert timeout.total_s == 33.0
    assert retry.max_attempts > 1_000_000
    assert engine_options(policy.with_deadline(44.0))[1].total_s == 44.0
    changed = policy.with_timeout(None).with_delay(initial=1.0, maximum=2.0, multiplier=3.0)
    retry, timeout = engine_options(changed)
    assert (retry.initial_backoff_s, retry.max_backoff_s, retry.backoff_multiplier) == (1, 2, 3)
    assert timeout.total_s > 86400 * 365
    assert engine_options(policy.with_timeout(0))[0].max_attempts == 1
    assert engine_options(policy.with_delay(initial=0.0))[0].initial_backoff_s > 0


def test_a_policy_for_writes_with_a_precondition_is_what_it_holds() -> None:
    policy = GoogleRetry(initial=0.5, maximum=7.0, multiplier=1.5, timeout=33.0)
    conditional = ConditionalRetryPolicy(policy, lambda **_: True, [])
    assert engine_options(conditional) == engine_options(policy)


@pytest.mark.parametrize("policy", [5, "default", {}])
def test_what_is_no_policy_is_refused(policy: Any) -> None:
    with pytest.raises(headrace.InvalidArgumentError, match="the retry policy is"):
        engine_options(policy)


def test_a_policy_that_nobody_chose_is_the_engines_own() -> None:
    own = (headrace.RetryOptions(), headrace.TimeoutOptions())
    assert engine_options(DATASET_RETRY) == own
    assert engine_options(pickle.loads(pickle.dumps(LIBRARY_RETRY))) == own
    assert engine_options(DATASET_RETRY.with_deadline(100_000.0)) != own
    assert engine_options(None)[0].max_attempts == 1


def test_our_policy_decorates_a_function_as_googles_does() -> None:
    calls = []
    told = []

    def flaky() -> str:
        calls.append(1)
        if len(calls) < 3:
            raise google.api_core.exceptions.ServiceUnavailable("later")
        return "done"

    policy = Retry(initial=0.001, maximum=0.001, timeout=20)
    assert policy(flaky, on_error=told.append)() == "done"
    assert (len(calls), len(told)) == (3, 2)
    with pytest.raises(ValueError, match="not that"):
        policy.with_predicate(lambda error: False)(_raise_value_error)()
    assert "timeout=20" in repr(policy)


def _raise_value_error() -> None:
    raise ValueError("not that")


# ---- errors


@pytest.mark.parametrize(
    ("status", "ours", "googles"),
    [
        (400, headrace.InvalidArgumentError, google.api_core.exceptions.BadRequest),
        (401, headrace.PermissionDeniedError, google.api_core.exceptions.Unauthorized),
        (403, headrace.PermissionDeniedError, google.api_core.exceptions.Forbidden),
        (404, headrace.NotFoundError, google.api_core.exceptions.NotFound),
        (429, headrace.ThrottledError, google.api_core.exceptions.TooManyRequests),
        (500, headrace.UnavailableError, google.api_core.exceptions.InternalServerError),
        (503, headrace.UnavailableError, google.api_core.exceptions.ServiceUnavailable),
    ],
)
def test_an_answers_error_is_ours_and_googles(
    server: FaultServer, objects: Objects, status: int, ours: type, googles: type
) -> None:
    # Being throttled is no failure: only the time ends that, as where there is too little left.
    until = {"retry_after_s": 3600} if status == 429 else {}
    server.faults([{"match": {"kind": "media"}, "action": {"status": status, **until}}])
    policy = Retry(initial=0.001, maximum=0.001, timeout=3000) if status == 429 else None
    with pytest.raises(googles) as raised:
        download.download_single(None, BUCKET, "train/001", policy)
    headrace.shutdown()  # the pace that throttling has set is the host's
    error: Any = raised.value
    assert isinstance(error, ours)
    assert error.http_status == error.code == status
    assert error.url == f"gs://{BUCKET}/train/001"
    assert error.message == str(error)
    assert str(error).startswith(f"gs://{BUCKET}/train/001")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert (again.code, again.http_status, again.url, str(again)) == (
        status,
        status,
        error.url,
        str(error),
    )
    assert str(type(error)("only a text")) == "only a text"


def test_an_error_without_an_answer_is_ours_alone() -> None:
    error = headrace.CorruptDataError("gs://b/o: wrong")
    with pytest.raises(headrace.CorruptDataError) as raised, as_google_raises():
        raise error
    assert raised.value is error


def test_without_google_api_core_errors_are_ours(
    server: FaultServer, objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.compat._google_errors._google_exceptions", lambda: None)
    with pytest.raises(headrace.NotFoundError) as raised:
        download.download_single(None, BUCKET, "missing")
    assert type(raised.value) is headrace.NotFoundError


def test_samples_can_be_opened_as_files(server: FaultServer, objects: Objects) -> None:
    with io.BytesIO(download.download_single(None, BUCKET, "train/002")) as file:
        assert file.read(3) == b"002"


# ---- splitting

SPLITS = [
    ("full", "", "", 24, [f"{int(99 * i / 25):02d}" for i in range(1, 25)]),
    ("open end", "5555", "", 4, ["63", "72", "81", "90"]),
    ("open start", "", "9", 1, ["4"]),
    ("few in much", "0", "9", 3, ["2", "4", "6"]),
    ("neighbours", "199999", "2", 1, ["1999995"]),
    ("equal beginnings", "0123455111", "012347", 1, ["012346"]),
    ("backwards", "456", "123", 1, []),
    ("equal when padded", "9", "90", 100, []),
]


@pytest.mark.parametrize(
    ("start", "end", "splits", "expected"), [case[1:] for case in SPLITS], ids=lambda value: None
)
def test_ranges_are_cut_at_equal_distances(
    start: str, end: str, splits: int, expected: list[str]
) -> None:
    assert (
        range_splitter.new_rangesplitter("0123456789").split_range(start, end, splits) == expected
    )


@given(st.text("ab/01é", max_size=6), st.text("ab/01é", max_size=6), st.integers(1, 40))
def test_splits_lie_in_order_within_their_range(start: str, end: str, splits: int) -> None:
    found = list(range_splitter.new_rangesplitter("ab").split_range(start, end, splits))
    assert found == sorted(set(found))
    assert len(found) in (0, splits)
    assert all(start < name and (not end or name < end) for name in found)
    if not found:
        assert end
        # Nothing over the alphabet lies between them but what ends in its smallest character.
        smallest = min("ab" + start + end)
        assert end <= start or end.rstrip(smallest) == start.rstrip(smallest)


def test_a_splitters_parts_do_what_they_say() -> None:
    splitter = range_splitter.new_rangesplitter("0123AB")
    assert [splitter.int_to_string(i, 3) for i in (15, 215, 220)] == ["023", "BBB", "00A"]
    splitter = range_splitter.new_rangesplitter("789")
    splitter.add_characters_to_alphabet("102")
    assert splitter.sorted_alphabet == list("012789")
    assert splitter.alphabet_map == {"0": 0, "1": 1, "2": 2, "7": 3, "8": 4, "9": 5}
    digits = range_splitter.new_rangesplitter("0123456789")
    found = digits.string_to_minimal_int_range("12", "2", 3)
    assert found == range_splitter.MinimalIntRange(start_int=12, end_int=20, min_len=2)
    opts = range_splitter.GenerateSplitsOpts(found, 3, "12", "2")
    assert digits.generate_splits(opts) == ["14", "16", "18"]
    assert not digits.is_range_equal_with_padding("9", "91")
    assert digits.is_range_equal_with_padding("9", "900")
    assert range_splitter.get_char_or_default("abc", 1, "x") == "b"
    assert range_splitter.get_char_or_default("abc", 3, "x") == "x"


def test_splitting_says_what_it_cannot_do() -> None:
    with pytest.raises(ValueError, match="alphabet is empty"):
        range_splitter.new_rangesplitter("")
    splitter = range_splitter.new_rangesplitter("ab")
    with pytest.raises(ValueError, match="num_splits is 0"):
        splitter.split_range("a", "b", 0)
    with pytest.raises(ValueError, match="nothing lies between"):
        splitter.string_to_minimal_int_range("b", "ba", 1)
