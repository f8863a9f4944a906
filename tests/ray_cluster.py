"""A Ray cluster of two nodes on this machine, which nobody else can reach."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace, TracebackType
from typing import Any
from unittest import mock

from headrace._pack.on_ray import own_environment

__all__ = ["TwoNodes"]

_NODE: dict[str, Any] = {
    "num_cpus": 1,
    "node_ip_address": "127.0.0.1",
    "object_store_memory": 100 << 20,
    "include_dashboard": False,
    "_system_config": {
        # Where the store is full, Ray puts blocks on the disk, but by itself not on one that is
        # 95 % full.
        "local_fs_capacity_threshold": 1.0,
        # It would end tasks where other programs have taken 95 % of the memory.
        "memory_monitor_refresh_ms": 0,
        # How long processes may take to begin.
        "agent_register_timeout_ms": 240_000,
        "worker_register_timeout_seconds": 240,
    },
}
_OF_HEAD = {"include_dashboard", "_system_config"}  # which tells the other node


@contextmanager
def _patience() -> Iterator[None]:
    """Let nodes take several minutes to begin: Ray gives them 30 s, which a busy machine exceeds.

    The bound is not for callers to set, but the clock that Ray reads there is a module's.
    """
    clock = SimpleNamespace(**{**vars(time), "monotonic": lambda: time.monotonic() / 8})
    longer = {"RAY_gcs_server_port_wait_time_s": "240"}
    with mock.patch("ray._private.node.time", clock), mock.patch.dict(os.environ, longer):
        yield


class TwoNodes:
    """Two nodes of one CPU each, to which this process is connected."""

    def __enter__(self) -> TwoNodes:
        import ray
        from ray.cluster_utils import Cluster

        with ExitStack() as stack:
            stack.enter_context(own_environment())
            with _patience():
                cluster = Cluster(initialize_head=True, head_node_args=_NODE)
                stack.callback(cluster.shutdown)
                cluster.add_node(**{k: v for k, v in _NODE.items() if k not in _OF_HEAD})
            stack.callback(ray.shutdown)
            ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.ERROR)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()
