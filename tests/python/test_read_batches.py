"""`Store.read_batches`: order, laziness, early ends, errors."""

from __future__ import annotations

from collections.abc import Iterator

import hypothesis
import hypothesis.strategies as st
import pytest

import headrace
from testing.faultserver.client import FaultServer

pytestmark = pytest.mark.every_store


class Counting:
    """Batches of one name each; knows how many were pulled."""

    def __init__(self, batches: list[list[str]], failure: Exception | None = None) -> None:
        self._batches = batches
        self._failure = failure
        self.pulled = 0

    def __iter__(self) -> Iterator[list[str]]:
        for batch in self._batches:
            self.pulled += 1
            yield batch
        if self._failure is not None:
            raise self._failure


def fill(store: headrace.Store, count: int, size_bytes: int = 10) -> list[str]:
    names = [f"{i:03}" for i in range(count)]
    for name in names:
        store.write(name, name.encode().ljust(size_bytes))
    return names


def texts(batch: list[headrace.Sample]) -> list[str]:
    return [sample.bytes().decode().strip() for sample in batch]


@hypothesis.settings(
    max_examples=25, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture]
)
@hypothesis.given(
    batches=st.lists(st.lists(st.integers(0, 19), max_size=5), max_size=8),
    prefetch_bytes=st.none() | st.integers(0, 200),
)
def test_order_is_kept(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[int]], prefetch_bytes: int | None
) -> None:
    store = headrace.Store(tmp_path_factory.mktemp("order"))
    names = fill(store, 20)
    wanted = [[names[i] for i in batch] for batch in batches]
    assert [texts(b) for b in store.read_batches(wanted, prefetch_bytes=prefetch_bytes)] == wanted


def test_infos_and_names_mix(store: headrace.Store) -> None:
    fill(store, 2)
    first, second = store.list()
    batches = [(first, second.name), iter([second])]
    assert [texts(b) for b in store.read_batches(batches)] == [["000", "001"], ["001"]]


def test_nothing_is_pulled_before_the_first_batch_is_asked_for(store: headrace.Store) -> None:
    source = Counting([[name] for name in fill(store, 3)])
    reader = store.read_batches(source)
    assert source.pulled == 0
    next(reader)
    assert source.pulled >= 2


def test_pulls_stay_within_ahead_bytes(store: headrace.Store) -> None:
    fill(store, 12, size_bytes=1000)
    infos = list(store.list())
    source = Counting([[info] for info in infos])  # type: ignore[list-item]
    most_ahead = 0
    for yielded, _ in enumerate(store.read_batches(source, prefetch_bytes=3000), start=1):
        most_ahead = max(most_ahead, source.pulled - yielded)
    assert most_ahead == 3
    assert source.pulled == 12


def test_one_batch_is_always_under_way(store: headrace.Store) -> None:
    source = Counting([[name] for name in fill(store, 4)])
    for yielded, _ in enumerate(store.read_batches(source, prefetch_bytes=0), start=1):
        assert source.pulled == min(yielded + 1, 4)


def test_held_samples_slow_the_reading_ahead(run_child: object, tmp_path: object) -> None:
    run_child(  # type: ignore[operator]
        """
        import sys
        import headrace
        headrace.configure(memory_budget_bytes=4 * headrace.MiB)
        store = headrace.Store(sys.argv[1])
        for i in range(12):
            store.write(f"{i:02}", bytes(headrace.MiB))
        pulled = 0
        def batches():
            global pulled
            for info in list(store.list()):
                pulled += 1
                yield [info]
        held = []
        for batch in store.read_batches(batches()):
            held += batch
            # Past the budget nothing is read that nobody waits for.
            assert pulled - len(held) <= 3
            if len(held) > 4:
                assert pulled - len(held) <= 1, (pulled, len(held))
        assert len(held) == 12
        """,
        str(tmp_path),
    )


def test_the_iterables_own_error_comes_after_what_came_before(store: headrace.Store) -> None:
    names = fill(store, 3)
    reader = store.read_batches(Counting([[n] for n in names], failure=KeyError("mine")))
    assert [texts(next(reader)) for _ in names] == [[n] for n in names]
    with pytest.raises(KeyError, match="mine"):
        next(reader)
    with pytest.raises(StopIteration):
        next(reader)


def test_a_batch_that_is_none_is_told_in_its_turn(store: headrace.Store) -> None:
    fill(store, 1)
    reader = store.read_batches([["000"], "000", ["000"]])
    assert texts(next(reader)) == ["000"]
    with pytest.raises(TypeError, match="several names"):
        next(reader)


def test_an_error_ends_the_reading(store: headrace.Store) -> None:
    fill(store, 2)
    reader = store.read_batches([["000"], ["001", "none", "neither"], ["000"]])
    assert texts(next(reader)) == ["000"]
    with pytest.raises(headrace.NotFoundError) as caught:
        next(reader)
    assert caught.value.url == store.url_of("none")
    assert caught.value.__notes__ == ["1 other object of the 3 that were read together failed, too"]
    assert list(reader) == []


def test_errors_stand_in_their_places_if_asked(store: headrace.Store) -> None:
    fill(store, 2)
    batches = [["none", "000"], ["001"]]
    first, second = store.read_batches(batches, on_error="return")
    assert isinstance(first[0], headrace.NotFoundError)
    assert isinstance(first[1], headrace.Sample)
    assert texts(second) == ["001"]  # type: ignore[arg-type]


@pytest.mark.parametrize("how", ["close", "drop", "raise"])
def test_an_early_end_cancels_what_is_ahead(
    gcs: headrace.Store, server: FaultServer, how: str
) -> None:
    fill(gcs, 3)
    # The second object never comes: only a cancelled read ends within the test's time.
    server.faults([{"match": {"path_contains": "001"}, "action": {"stall_head": True}}])
    reader = gcs.read_batches([["000"], ["001"], ["001"]])
    assert texts(next(reader)) == ["000"]
    if how == "close":
        reader.close()  # type: ignore[attr-defined]
    elif how == "raise":
        with pytest.raises(KeyError):
            reader.throw(KeyError("mine"))  # type: ignore[attr-defined]
    del reader
    assert headrace.metrics().memory_in_flight_bytes == 0


def test_options_are_checked_at_once(store: headrace.Store) -> None:
    with pytest.raises(headrace.InvalidArgumentError):
        store.read_batches([], prefetch_bytes=-1)
    with pytest.raises(headrace.InvalidArgumentError):
        store.read_batches([], on_error="ignore")  # type: ignore[call-overload]
    with pytest.raises(TypeError):
        store.read_batches(None)  # type: ignore[call-overload]
