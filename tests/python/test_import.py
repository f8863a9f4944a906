"""`import headrace` is cheap."""

from __future__ import annotations

from collections.abc import Callable

import pytest


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


@pytest.mark.slow
def test_the_packages_that_need_torch_load_when_they_are_named(
    run_child: Callable[..., object],
) -> None:
    run_child(
        """
        import sys
        import headrace
        assert not any(name in sys.modules for name in ("torch", "headrace.torch"))
        assert headrace.torch.Loader.__module__ == "headrace.torch"
        assert headrace.checkpoint.save.__module__ == "headrace.checkpoint"
        assert headrace.compat.__name__ == "headrace.compat"
        assert not hasattr(headrace, "tensorflow")
        """
    )


@pytest.mark.slow
def test_lightning_loads_when_it_is_named(run_child: Callable[..., object]) -> None:
    pytest.importorskip("lightning")
    run_child(
        """
        import headrace
        assert headrace.lightning.CheckpointIO
        """
    )
