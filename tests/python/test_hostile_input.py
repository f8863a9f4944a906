"""Text that must not get into a request, and answers that are not what was asked for."""

from __future__ import annotations

import pytest

import headrace
from testing.faultserver.client import FaultServer
from testing.servers import FakeGcsServer

NOT_A_HEADER = ["text/plain\r\nX-Injected: 1", "text\nplain", "nul\0", "größe", "del\x7f"]


@pytest.mark.parametrize("text", NOT_A_HEADER)
def test_a_content_type_that_is_no_header_is_refused_before_anything_is_sent(
    gcs: headrace.Store, server: FaultServer, text: str
) -> None:
    before = server.stats()["requests"]
    with pytest.raises(headrace.InvalidArgumentError, match="content_type must consist of"):
        gcs.write("a", b"bytes", content_type=text)
    with pytest.raises(headrace.InvalidArgumentError, match="content_type must consist of"):
        gcs.open_writer("a", content_type=text)
    assert server.stats()["requests"] == before


@pytest.mark.parametrize("text", NOT_A_HEADER)
def test_a_user_agent_that_is_no_header_is_refused_when_the_store_is_made(
    server: FaultServer, text: str
) -> None:
    with pytest.raises(headrace.InvalidArgumentError, match="user_agent_suffix must consist of"):
        headrace.Store("gs://bucket", endpoint=server.url, user_agent_suffix=text)


def test_a_generation_with_quotes_stays_text(gcs: headrace.Store) -> None:
    part = gcs.write("part", b"bytes")
    odd = headrace.ObjectInfo(
        name="part",
        size_bytes=part.size_bytes,
        crc32c=part.crc32c,
        generation='1"}},{"name":"other',
    )
    with pytest.raises(headrace.HeadraceError):
        gcs.compose([odd], "whole")
    assert [info.name for info in gcs.list()] == ["part"]


def test_an_object_that_changed_is_told_so_where_the_server_ignores_conditions(
    fake_gcs: FakeGcsServer, gcs_bucket: str
) -> None:
    store = headrace.Store(f"gs://{gcs_bucket}", endpoint=fake_gcs.url)
    listed = store.write("a", b"one")
    store.write("a", b"two")
    with pytest.raises(headrace.PreconditionFailedError, match="has changed since it was listed"):
        store.read_many([listed])
