"""``dataflux_pytorch`` on headrace."""

from headrace.compat.dataflux_pytorch import dataflux_mapstyle_dataset

__all__ = ["dataflux_mapstyle_dataset"]
