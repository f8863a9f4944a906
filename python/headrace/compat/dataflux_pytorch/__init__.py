"""``dataflux_pytorch`` on headrace: the datasets.

The names of checkpoints, Lightning and multipart uploads are not here yet; importing them says so.
"""

from headrace.compat.dataflux_pytorch import dataflux_mapstyle_dataset

__all__ = ["dataflux_mapstyle_dataset"]
