"""Listings of several pages, where folders stand beside names that begin like theirs."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace
from testing.faultserver.client import FaultServer
from testing.servers import AistoreCluster
from tests.ais.conftest import Configure, Open

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
@pytest.mark.parametrize(
    "max_page", [3, *(pytest.param(each, marks=pytest.mark.soak) for each in (5, 9))]
)
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


@pytest.mark.parametrize("personality", ["A", "B"])
def test_more_names_beside_a_folder_than_a_page_takes_make_pages_of_their_own(
    ais_server: FaultServer, open_store: Open, personality: str
) -> None:
    present = sorted(
        [f"train-{i:03}" for i in range(60)]
        + [f"train-{i:03}/{k}" for i in range(60, 70) for k in range(3)]
        + [f"train/{i:02}" for i in range(40)]
        + ["train.tar"]
    )
    filled(ais_server, present, 7)
    ais_server.cluster(personality=personality)
    assert [info.name for info in open_store().list()] == present
    assert [info.name for info in open_store().list("train-")] == [
        name for name in present if name.startswith("train-")
    ]


def test_a_folder_beside_a_folder_whose_name_it_begins_with_is_an_error(
    ais_server: FaultServer, open_store: Open
) -> None:
    present = ["train-/x", "train-a", *[f"train/{i:02}" for i in range(40)]]
    filled(ais_server, present, 4)
    with pytest.raises(headrace.InvalidArgumentError, match=r"'train/' and 'train-/' are folders"):
        list(open_store().list())
    assert len(list(open_store().list("train/"))) == 40


@pytest.mark.parametrize("personality", ["A", "B"])
def test_a_folder_of_many_pages_is_looked_beside_once(
    ais_server: FaultServer, open_store: Open, personality: str
) -> None:
    present = sorted([f"train/{i:03}" for i in range(120)] + ["train-a", "train.tar", "trainz"])
    filled(ais_server, present, 10)
    ais_server.cluster(personality=personality)
    assert [info.name for info in open_store().list()] == present
    # 13 pages, and 15 characters with which names beside the folder may go on; newer servers list
    # the folder for "train*", and are asked again.
    assert ais_server.stats()["by_kind"]["list"] == 13 + len(BESIDE) + (personality == "B")


def test_a_listing_from_within_a_folder_does_not_look_beside_it(
    ais_server: FaultServer, open_store: Open
) -> None:
    present = sorted([f"train/{i:03}" for i in range(40)] + ["train-a", "train.tar"])
    filled(ais_server, present, 10)
    found = open_store().list(start_offset="train/005")
    assert [info.name for info in found] == present[present.index("train/005") :]
    assert ais_server.stats()["by_kind"]["list"] == 4


@pytest.mark.parametrize("most", [1, 3, 150])
def test_a_short_page_asks_for_few_names(
    ais_server: FaultServer, open_store: Open, most: int
) -> None:
    ais_server.synthetic("bucket", 20_000, 10, shape="flat")
    names = [info.name for info in open_store().list_page(max_results=most).objects]
    assert names == [f"{i:07}" for i in range(most)]
    assert ais_server.stats()["by_kind"]["list"] == 1
    assert ais_server.stats()["by_node"][0]["body_bytes_out"] < 150 * max(100, most)


def test_pages_of_one_folder_cost_one_request_each(
    ais_server: FaultServer, open_store: Open
) -> None:
    present = [f"train/{i:03}" for i in range(40)]
    filled(ais_server, present, 10)
    assert [info.name for info in open_store().list("train/")] == present
    assert ais_server.stats()["by_kind"]["list"] == 5


# ── Memory ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("budget_mib", "pages"), [(1, 25), (16, 7), (256, 2)])
def test_pages_are_as_large_as_the_memory_budget_permits(
    configure: Configure, ais_server: FaultServer, open_store: Open, budget_mib: int, pages: int
) -> None:
    configure(memory_budget_bytes=budget_mib * headrace.MiB)
    ais_server.synthetic("bucket", 100_000, 10, shape="flat")
    names = [info.name for info in open_store().list()]
    assert names == [f"{i:07}" for i in range(100_000)]
    # The last page of full size has a token, after which nothing comes.
    assert ais_server.stats()["by_kind"]["list"] == pages
    assert headrace.metrics().memory_peak_live_bytes <= max(1, budget_mib / 4) * headrace.MiB


@pytest.mark.parametrize("chunked", [False, True], ids=["announced", "chunked"])
def test_an_answer_that_is_too_large_is_asked_for_in_smaller_pages(
    configure: Configure, ais_server: FaultServer, open_store: Open, chunked: bool
) -> None:
    configure(memory_budget_bytes=headrace.MiB)
    ais_server.synthetic("bucket", 2500, 10, name_pattern="n" * 900 + "{index:07d}")
    if chunked:
        ais_server.faults([{"match": {"kind": "list"}, "action": {"chunked": True}}])
    assert len([*open_store().list()]) == 2500
    # Two pages of 1,024 names, each after 4,096 and 2,048 were too many, and the rest.
    assert ais_server.stats()["by_kind"]["list"] == 3 + 3 + 1
    assert headrace.metrics().retries_total == 0
    # Of an answer so much is always taken; and the page that was made of it.
    assert headrace.metrics().memory_peak_live_bytes <= 2.25 * headrace.MiB


def test_names_beside_a_folder_that_are_too_many_for_the_memory_come_page_by_page(
    configure: Configure, ais_server: FaultServer, open_store: Open
) -> None:
    configure(memory_budget_bytes=headrace.MiB)
    ais_server.synthetic("bucket", 9000, 10, name_pattern="train-{index:05d}")
    for i in range(5000):
        ais_server.put("bucket", f"train/{i:05}", b"x")
    present = [f"train-{i:05}" for i in range(9000)] + [f"train/{i:05}" for i in range(5000)]
    assert [info.name for info in open_store().list()] == present
    # Pages of at most 4,096 names, and the requests for those beside the folder: that for "train*"
    # twice.
    assert ais_server.stats()["by_kind"]["list"] == 24
    assert headrace.metrics().memory_peak_live_bytes <= headrace.MiB


# ── Real clusters ────────────────────────────────────────────────────────────────────────────


@pytest.fixture(
    params=[pytest.param(1, marks=pytest.mark.soak), 3], ids=["one-target", "three-targets"]
)
def real(request: pytest.FixtureRequest) -> headrace.Store:
    """A new, empty bucket on a real cluster."""
    of = "" if request.param == 1 else "_of_three"
    cluster: AistoreCluster = request.getfixturevalue(f"ais_cluster{of}")
    bucket = request.getfixturevalue(f"ais_bucket{of}")
    return headrace.Store(f"ais://{bucket}", endpoint=cluster.url)


def by_short_pages(store: headrace.Store, prefix: str = "", most: int = 100) -> list[str]:
    """All names by pages of their own: no shorter ones are asked for than of a hundred names."""
    names: list[str] = []
    token = ""
    while True:
        page = store.list_page(prefix, page_token=token, max_results=most)
        names += [info.name for info in page.objects]
        token = page.next_page_token
        if not token:
            return names


ODD = ["train", "train é", "train!", "train#1", "train%41", "train+x", "train-x/y", "train.tar"]
WRITTEN = sorted(
    [f"d/train/{i:03}" for i in range(180)]
    + [f"d/train-{i:03}.tar" for i in range(130)]
    + [f"d/train-{c}/{i}" for c in "ab" for i in range(20)]
    + [f"d/{name}" for name in ODD[1:]]
    + ["d/trainz", "e?f", "g/ü/ß"],
    key=str.encode,
)


def written(store: headrace.Store) -> None:
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda name: store.write(name, name.encode()), WRITTEN))


def test_a_real_cluster_lists_what_was_written(real: headrace.Store) -> None:
    written(real)
    for prefix in ("", "d/", "d/train", "d/train-", "d/train/", "d/train-1", "e", "none"):
        expected = [name for name in WRITTEN if name.startswith(prefix)]
        assert [info.name for info in real.list(prefix)] == expected, prefix
        assert by_short_pages(real, prefix) == expected, prefix
    sizes = {info.name: info.size_bytes for info in real.list()}
    assert sizes == {name: len(name.encode()) for name in WRITTEN}
    tops = [entry.name for entry in real.list("d/", delimiter="/")]
    assert tops == sorted(
        {name if "/" not in name[2:] else name[: name.index("/", 2) + 1] for name in WRITTEN[:-2]},
        key=str.encode,
    )


def test_names_beside_folders_that_no_cluster_takes_are_listed(real: headrace.Store) -> None:
    names = sorted([f"range 0...{i:03}" for i in range(130)] + [f"tmp~-{i:03}" for i in range(130)])
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda name: real.write(name, b"1"), names))
    assert [info.name for info in real.list()] == names
    assert by_short_pages(real) == names


def test_while_a_real_cluster_is_written_to_what_stays_is_listed_once(
    real: headrace.Store,
) -> None:
    written(real)
    done = threading.Event()
    passing = [
        f"d/train{c}{i:02}" for c in ("/", "/09-", "-", "-a/", "-05", ".t") for i in range(9)
    ]

    def write_and_delete() -> int:
        rounds = 0
        while not done.is_set():
            for name in passing:
                real.write(name + "-passing", b"x")
            for name in passing:
                real.delete(name + "-passing")
            rounds += 1
        return rounds

    with ThreadPoolExecutor(1) as threads:
        writing = threads.submit(write_and_delete)
        try:
            for _ in range(8):
                for names in (by_short_pages(real), [info.name for info in real.list()]):
                    assert names == sorted(set(names), key=str.encode)
                    assert [n for n in names if not n.endswith("-passing")] == WRITTEN
        finally:
            done.set()
        assert writing.result() >= 1
