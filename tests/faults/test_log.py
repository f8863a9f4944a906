"""What the logger ``headrace`` is told while the engine works, and what it is not told."""

from __future__ import annotations

import logging
import time

import pytest

import headrace
from testing.faultserver.client import FaultServer
from tests.faults.conftest import OpenStore

RETRY = headrace.RetryOptions(initial_backoff_s=0.05, max_backoff_s=0.3, max_attempts=1000)


def records(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "headrace" and r.levelno == level]


def test_a_server_that_is_not_there_is_told_while_the_caller_waits(
    caplog: pytest.LogCaptureFixture,
) -> None:
    headrace.shutdown()
    began = time.time()
    with caplog.at_level(logging.DEBUG, logger="headrace"):
        store = headrace.Store(
            "gs://bucket",
            endpoint="http://127.0.0.1:1",
            credentials=headrace.BearerToken("very-secret"),
            retry=RETRY,
            timeout=headrace.TimeoutOptions(total_s=6.0),
        )
        for _ in range(2):
            with pytest.raises(headrace.HeadraceError):
                store.read("a")
    warnings = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert len(warnings) == 1, "once in half a minute, however many requests meet it"
    text = warnings[0].getMessage()
    assert "http://127.0.0.1:1" in text
    assert "Connection refused" in text
    assert "gives up after another" in text
    assert warnings[0].created < began + 6.0, "while the read goes on, not after it"
    # One in ten seconds, of two reads that take six each.
    assert 1 <= len(records(caplog, logging.INFO)) <= 3
    assert len(records(caplog, logging.DEBUG)) > 10
    assert "very-secret" not in caplog.text


def test_throttling_is_told_once_and_reads_that_go_well_are_not(
    server: FaultServer, open_store: OpenStore, caplog: pytest.LogCaptureFixture
) -> None:
    server.put("bucket", "a", b"bytes")
    with caplog.at_level(logging.DEBUG, logger="headrace"):
        store = open_store(retry=RETRY)
        for _ in range(20):
            store.read("a")
        assert not caplog.records
        server.faults([{"match": {"kind": "media"}, "count": 5, "action": {"status": 429}}])
        store.read("a")
        store.list()
    (text,) = records(caplog, logging.WARNING)
    assert "throttles" in text
    assert len(records(caplog, logging.DEBUG)) == 5


def test_a_handler_that_fails_or_reads_itself_disturbs_no_read(
    server: FaultServer, open_store: OpenStore
) -> None:
    server.put("bucket", "a", b"bytes")
    store = open_store(retry=RETRY)
    told = []

    class Reading(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.append(bytes(store.read("a")))

    handler, logger = Reading(), logging.getLogger("headrace")
    logger.addHandler(handler)
    try:
        server.faults([{"match": {"kind": "media"}, "count": 2, "action": {"status": 429}}])
        assert bytes(store.read("a")) == b"bytes"
    finally:
        logger.removeHandler(handler)
    assert told == [b"bytes"]
