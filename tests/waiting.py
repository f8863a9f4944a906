"""Waiting for what happens elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], bool]) -> None:
    """Return when it is so; it must be soon."""
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.005)  # what is waited for needs the processor
