"""``dataflux_pytorch.lightning``, with ``gcs_filesystem`` and ``path_utils``, is not here yet."""

from headrace.compat.not_yet import refuse

refuse("dataflux_pytorch.lightning")
