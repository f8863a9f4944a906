"""``dataflux_pytorch.multipart_upload``: an object from a buffer, by parallel parts."""
