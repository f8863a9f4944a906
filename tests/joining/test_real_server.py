"""Against fake-gcs-server, which does not look at the generations of what it composes."""

from __future__ import annotations

import pytest

import headrace
from testing.servers import FakeGcsServer
from tests.joining.conftest import JOIN, TEMPORARY, content


@pytest.fixture
def store(fake_gcs: FakeGcsServer, gcs_bucket: str) -> headrace.Store:
    for i in range(70):
        fake_gcs.put(gcs_bucket, f"data/{i:03d}", content(i))
    return headrace.Store(
        f"gs://{gcs_bucket}",
        endpoint=fake_gcs.url,
        provider=headrace.GcsOptions(compose_small_objects=JOIN),
    )


def _left(fake_gcs: FakeGcsServer, bucket: str) -> list[str]:
    headrace.shutdown()
    return [name for name in fake_gcs.names(bucket) if name.startswith(TEMPORARY)]


def test_objects_are_joined_and_nothing_is_left(
    fake_gcs: FakeGcsServer, gcs_bucket: str, store: headrace.Store
) -> None:
    infos = [*store.list()]
    before = headrace.metrics().requests_total
    for _ in range(3):
        samples = store.read_many(infos)
        assert [each.bytes() for each in samples] == [content(i) for i in range(70)]
    # Of each group, and the search for what was left by others.
    assert headrace.metrics().requests_total - before <= 3 * 3 * 3 + 1
    assert _left(fake_gcs, gcs_bucket) == []


def test_a_source_that_has_changed_is_noticed(
    fake_gcs: FakeGcsServer, gcs_bucket: str, store: headrace.Store
) -> None:
    infos = [*store.list()]
    fake_gcs.put(gcs_bucket, "data/005", content(5)[::-1])
    results = store.read_many(infos, on_error="return")
    for i, result in enumerate(results):
        if i == 5:
            # This server ignores the condition; its answer tells another generation.
            assert isinstance(result, headrace.PreconditionFailedError)
            assert f"gs://{gcs_bucket}/data/005: has changed since it was listed" in str(result)
        else:
            assert not isinstance(result, headrace.HeadraceError)
            assert result.bytes() == content(i)
    assert _left(fake_gcs, gcs_bucket) == []


def test_clean_removes_what_is_there(
    fake_gcs: FakeGcsServer, gcs_bucket: str, store: headrace.Store
) -> None:
    ours = f"{TEMPORARY}headrace-{5:032x}"
    fake_gcs.put(gcs_bucket, ours, b"left")
    fake_gcs.put(gcs_bucket, f"{TEMPORARY}other", b"not ours")
    assert [info.name for info in headrace.clean(store, older_than_s=0, dry_run=True).deleted] == [
        ours
    ]
    assert [info.name for info in headrace.clean(store, older_than_s=0).deleted] == [ours]
    assert _left(fake_gcs, gcs_bucket) == [f"{TEMPORARY}other"]
