"""A Ray cluster of two nodes on this machine, which nobody else can reach."""

from __future__ import annotations

import logging
import os
from types import TracebackType
from typing import Any

__all__ = ["TwoNodes"]

_NODE: dict[str, Any] = {
    "num_cpus": 1,
    "node_ip_address": "127.0.0.1",
    "object_store_memory": 100 << 20,
    "include_dashboard": False,
}


# Read when Ray is imported. It takes 127.0.0.1 for the address of all nodes, as it does elsewhere
# than on Linux; sends nothing to anybody; and does not miss an agent for metrics.
os.environ |= {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_enable_metrics_collection": "0",
}


class TwoNodes:
    """Two nodes of one CPU each, to which this process is connected."""

    def __enter__(self) -> TwoNodes:
        import ray
        from ray.cluster_utils import Cluster

        self._ray = ray
        self._cluster = Cluster(initialize_head=True, head_node_args=_NODE)
        try:
            self._cluster.add_node(**{k: v for k, v in _NODE.items() if k != "include_dashboard"})
            ray.init(
                address=self._cluster.address, log_to_driver=False, logging_level=logging.ERROR
            )
        except BaseException:
            self._cluster.shutdown()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ray.shutdown()
        self._cluster.shutdown()
