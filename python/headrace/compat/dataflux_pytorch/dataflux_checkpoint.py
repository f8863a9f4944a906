"""``dataflux_pytorch.dataflux_checkpoint`` is not here yet."""

from headrace.compat.not_yet import refuse

refuse("dataflux_pytorch.dataflux_checkpoint")
