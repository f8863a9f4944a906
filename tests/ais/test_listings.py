"""Listings of several pages, where folders stand beside names that begin like theirs."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace
from testing.faultserver.client import FaultServer
from tests.ais.conftest import Open

BESIDE = [chr(c) for c in range(0x20, 0x2F)]

stems = st.sampled_from(["a", "b", "ab"])
ends = st.sampled_from(["", *(f"{c}x" for c in BESIDE)])
components = st.builds(str.__add__, stems, ends)
names = st.lists(components, min_size=1, max_size=3).map("/".join)


def without_clashes(names: set[str]) -> list[str]:
    """Without the objects that have the name of a folder."""
    folders = {name[:i] for name in names for i, c in enumerate(name) if c == "/"}
    return sorted(names - folders)


def filled(server: FaultServer, names: list[str], max_page: int) -> None:
    server.reset()
    server.bucket("bucket", max_page=max_page)
    for name in names:
        server.put("bucket", name, b"x")


def listed_or_refused(store: headrace.Store, prefix: str = "") -> list[str] | None:
    try:
        return [info.name for info in store.list(prefix)]
    except headrace.InvalidArgumentError as error:
        refusal = str(error)
    assert "is a folder" in refusal
    assert "one by one" in refusal
    return None


@pytest.mark.parametrize("personality", ["A", "B"])
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    made=st.sets(names, max_size=25),
    max_page=st.integers(1, 12),
    prefix=st.sampled_from(["", "a", "a/", "a-", "ab", "b/"]),
)
def test_no_listing_is_short(
    ais_server: FaultServer,
    open_store: Open,
    personality: str,
    made: set[str],
    max_page: int,
    prefix: str,
) -> None:
    present = without_clashes(made)
    filled(ais_server, present, max_page)
    ais_server.cluster(personality=personality)
    got = listed_or_refused(open_store(), prefix)
    assert got is None or got == [name for name in present if name.startswith(prefix)]


@pytest.mark.parametrize("personality", ["A", "B"])
@pytest.mark.parametrize("beside", BESIDE)
@pytest.mark.parametrize("max_page", [3, 5, 9])
def test_names_beside_a_folder_are_listed_in_their_places(
    ais_server: FaultServer, open_store: Open, personality: str, beside: str, max_page: int
) -> None:
    present = sorted(
        [f"d/train/{i}" for i in range(12)]
        + [f"d/train{beside}tar", f"d/train{beside}small/x", "d/trainz", "e"]
    )
    filled(ais_server, present, max_page)
    ais_server.cluster(personality=personality)
    for prefix in ("", "d/", "d/train", f"d/train{beside}"):
        want = [name for name in present if name.startswith(prefix)]
        assert [info.name for info in open_store().list(prefix)] == want


@pytest.mark.parametrize("personality", ["A", "B"])
@pytest.mark.parametrize("max_page", [1, 3, 7])
@pytest.mark.parametrize(
    "present",
    [[f"img-{i:03}.jpg" for i in range(20)], [f"{d}/{i}" for d in "abc" for i in range(7)]],
    ids=["flat", "folders"],
)
def test_where_nothing_stands_beside_a_folder_nothing_is_refused(
    ais_server: FaultServer,
    open_store: Open,
    personality: str,
    max_page: int,
    present: list[str],
) -> None:
    filled(ais_server, present, max_page)
    ais_server.cluster(personality=personality)
    assert [info.name for info in open_store().list()] == present


def test_too_many_names_beside_a_folder_are_an_error(
    ais_server: FaultServer, open_store: Open
) -> None:
    present = [f"train-{i}" for i in range(9)] + [f"train/{i}" for i in range(40)]
    filled(ais_server, present, 4)
    with pytest.raises(headrace.InvalidArgumentError, match=r"'train-'.*'train/' is a folder"):
        list(open_store().list())
    assert len(list(open_store().list("train/"))) == 40


def test_pages_of_one_folder_cost_one_request_each(
    ais_server: FaultServer, open_store: Open
) -> None:
    present = [f"train/{i:03}" for i in range(40)]
    filled(ais_server, present, 10)
    assert [info.name for info in open_store().list("train/")] == present
    assert ais_server.stats()["by_kind"]["list"] == 5
