"""``dataflux_pytorch.multipart_upload`` is not here yet."""

from headrace.compat.not_yet import refuse

refuse("dataflux_pytorch.multipart_upload")
