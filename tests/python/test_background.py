"""Work in the background: no error is lost, whenever it comes."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from headrace._base.background import InOrder


class FailsWhenLookedAt:
    """A future whose work fails just after the first look at it."""

    def __init__(self) -> None:
        self.looks = 0

    def done(self) -> bool:
        self.looks += 1
        return self.looks > 1

    def exception(self) -> Exception:
        return ValueError("lost")


def test_an_error_that_comes_during_the_look_for_errors_is_raised_and_stops_what_follows() -> None:
    work = InOrder("test")
    late: Any = FailsWhenLookedAt()
    work._under_way.append(late)
    ran = threading.Event()
    work.submit(ran.set)
    with pytest.raises(ValueError, match="lost"):
        work.close()
    assert not ran.is_set()


def test_work_after_an_error_is_dropped_and_the_error_raised_once() -> None:
    work, ran = InOrder("test"), threading.Event()

    def fails() -> None:
        raise ValueError("first")

    may_fail = threading.Event()
    work.submit(lambda: may_fail.wait(120) and fails())
    work.submit(ran.set)
    may_fail.set()
    with pytest.raises(ValueError, match="first"):
        work.wait()
    assert not ran.is_set()
    work.submit(ran.set)
    work.close()
    assert ran.is_set()
