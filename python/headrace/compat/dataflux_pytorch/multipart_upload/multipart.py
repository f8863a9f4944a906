"""``dataflux_pytorch.multipart_upload.multipart``: an object from a buffer, by parallel parts."""

from __future__ import annotations

import dataclasses
import io
from typing import Any

from headrace import InvalidArgumentError, Store
from headrace._files.leftovers import give_up
from headrace.compat._clients import bucket_url, store_options_of
from headrace.compat._google_errors import as_google_raises
from headrace.compat._retry import LIBRARY_RETRY, engine_options

__all__ = [
    "DEFAULT_MAX_WORKERS",
    "TM_DEFAULT_CHUNK_SIZE",
    "upload_chunks_concurrently_from_bytesio",
]

TM_DEFAULT_CHUNK_SIZE = 33554432
DEFAULT_MAX_WORKERS = 8


def upload_chunks_concurrently_from_bytesio(
    bytesio: io.BytesIO,
    blob: Any,
    content_type: str | None = None,
    chunk_size: int = TM_DEFAULT_CHUNK_SIZE,
    deadline: float | None = None,
    max_workers: int = DEFAULT_MAX_WORKERS,
    *,
    checksum: str | None = "crc32c",
    timeout: float | tuple[float, float] | None = 60,
    retry: Any = LIBRARY_RETRY,
) -> None:
    """Write all of `bytesio` to `blob`, which becomes visible whole and verified, or not at all.

    Args:
        bytesio: the content; it must not change until this returns.
        blob: a blob of ``google.cloud.storage``, or of another client with ``open``.
        content_type: default ``application/octet-stream``.
        chunk_size: bytes of a part.
        deadline: seconds for each request with all its attempts; None: as in `retry`.
        max_workers: parts in flight at a time.
        checksum: accepted; the CRC-32C of the whole is always compared.
        timeout: seconds to the first byte of a response; or a pair, seconds to connect and to that
            byte.
        retry: a policy of headrace or of google-api-core.
    """
    if checksum not in ("crc32c", "md5", "auto", None):
        raise InvalidArgumentError(f"checksum is {checksum!r}; it must be 'crc32c'")
    # A blob of another kind need not have a client.
    options = store_options_of(getattr(blob, "client", blob))
    if options is None:
        opened = blob.open("wb")
        if hasattr(opened, "close"):
            # Without `with`, which would publish an incomplete object after an error.
            opened.write(bytesio.getvalue())
            opened.close()
            return
        with opened as file:  # an object that is only a context manager
            file.write(bytesio.getvalue())
        return
    retries, timeouts = engine_options(retry)
    if deadline is not None:
        timeouts = dataclasses.replace(timeouts, total_s=float(deadline))
    if timeout is not None:
        connect_s, answer_s = timeout if isinstance(timeout, tuple) else (timeout, timeout)
        timeouts = dataclasses.replace(timeouts, connect_s=connect_s, first_byte_s=answer_s)
    with as_google_raises():
        store = Store(bucket_url(blob.bucket.name), retry=retries, timeout=timeouts, **options)
        writer = store.open_writer(
            blob.name,
            content_type=content_type,
            part_bytes=chunk_size,
            max_parts_in_flight=max_workers,
        )
        try:
            with bytesio.getbuffer() as data:
                writer.write_lent(data)
                writer.close()
        except BaseException as error:
            give_up(writer, error)
            raise
