"""``dataflux_pytorch.lightning``: checkpoints of Lightning and of torch.distributed."""

from headrace.compat.dataflux_pytorch.lightning.dataflux_fsdp_strategy import DatafluxFSDPStrategy
from headrace.compat.dataflux_pytorch.lightning.dataflux_lightning_checkpoint import (
    DatafluxLightningAsyncCheckpoint,
    DatafluxLightningCheckpoint,
)
from headrace.compat.dataflux_pytorch.lightning.gcs_filesystem import (
    GCSDistributedReader,
    GCSDistributedWriter,
    GCSFileSystem,
)

__all__ = [
    "DatafluxFSDPStrategy",
    "DatafluxLightningAsyncCheckpoint",
    "DatafluxLightningCheckpoint",
    "GCSDistributedReader",
    "GCSDistributedWriter",
    "GCSFileSystem",
]
