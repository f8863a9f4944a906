"""A Ray cluster of two nodes on this machine, which nobody else can reach."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from types import TracebackType
from typing import Any

from headrace._pack.on_ray import own_environment

__all__ = ["TwoNodes"]

_NODE: dict[str, Any] = {
    "num_cpus": 1,
    "node_ip_address": "127.0.0.1",
    "object_store_memory": 100 << 20,
    "include_dashboard": False,
    # Where the store is full, Ray puts blocks on the disk, but by itself not if that is 95 % full.
    "_system_config": {"local_fs_capacity_threshold": 1.0},
}
_OF_HEAD = {"include_dashboard", "_system_config"}  # which tells the other node


class TwoNodes:
    """Two nodes of one CPU each, to which this process is connected."""

    def __enter__(self) -> TwoNodes:
        import ray
        from ray.cluster_utils import Cluster

        with ExitStack() as stack:
            stack.enter_context(own_environment())
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
