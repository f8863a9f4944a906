"""`import headrace` is cheap."""

from __future__ import annotations

from collections.abc import Callable


def test_import_brings_no_heavy_module(run_child: Callable[..., object]) -> None:
    run_child(
        """
        import sys
        before = set(sys.modules)
        import headrace
        new = set(sys.modules) - before
        heavy = {"torch", "numpy", "google", "google.auth", "requests", "ssl", "asyncio", "certifi"}
        assert not heavy & new, heavy & new
        """
    )


def test_import_starts_no_thread(run_child: Callable[..., object]) -> None:
    run_child(
        """
        import os
        import headrace
        headrace.Store("gs://bucket")
        assert len(os.listdir("/proc/self/task")) == 1
        assert headrace.metrics() == headrace.Metrics()
        """
    )
