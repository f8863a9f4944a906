"""A parallel listing is a sorted set, whatever the names."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace
from testing.faultserver.client import FaultServer
from testing.servers import FakeGcsServer

# Close to each other, or anything that GCS allows as a name.
_NAMES = st.one_of(
    st.text("ab", min_size=1, max_size=5),
    st.text("0189/-éz中\x01\U0010ffff", min_size=1, max_size=6),
    st.text(
        st.characters(exclude_categories=("Cs",), exclude_characters="\r\n\0"),
        min_size=1,
        max_size=4,
    ),
)


@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.data_too_large],
)
@given(
    names=st.sets(_NAMES, max_size=60),
    prefix=st.sampled_from(["", "", "a", "0", "é"]),
    start=st.one_of(st.just(""), _NAMES),
    end=st.one_of(st.just(""), _NAMES),
)
def test_a_listing_is_the_sorted_set_of_its_names(
    server: FaultServer, store: headrace.Store, names: set[str], prefix: str, start: str, end: str
) -> None:
    server.reset()
    server.bucket("bucket", max_page=3)
    for name in names:
        server.put("bucket", name, b"")
    expected = sorted(
        (
            name
            for name in names
            if name.startswith(prefix)
            and name.encode() >= start.encode()
            and (not end or name.encode() < end.encode())
        ),
        key=str.encode,
    )
    listed = store.list(prefix, start_offset=start, end_offset=end)
    assert [info.name for info in listed] == expected
    assert [info.name for info in store.index()] == sorted(names, key=str.encode)


def test_fake_gcs_server_lists_in_parallel(fake_gcs: FakeGcsServer, gcs_bucket: str) -> None:
    names = sorted([f"a/{i:04d}" for i in range(700)] + [f"b/{i:x}" for i in range(700)])
    store = headrace.Store(f"gs://{gcs_bucket}", endpoint=fake_gcs.url)
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda name: store.write(name, b""), names))
    assert [info.name for info in store.list()] == names
    assert [info.name for info in store.index()] == names
    assert [info.name for info in store.index("a/1")] == [n for n in names if n.startswith("a/1")]


def test_a_directory_lists_the_same_way(tmp_path: Path) -> None:
    names = sorted(f"{i % 7}/{i:04d}" for i in range(2500))
    for name in names:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"")
    store = headrace.Store(tmp_path)
    assert [info.name for info in store.list()] == names
    assert list(store.index()) == list(store.list())
