"""Tar shards for tests, and what the fault server saw of their reads."""

from __future__ import annotations

import ctypes
import io
import tarfile
from collections.abc import Iterable
from typing import Any

import webdataset

import headrace
from testing.faultserver.client import FaultServer

Member = tuple[str, bytes]


def tar(members: Iterable[Member], *, tar_format: int = tarfile.USTAR_FORMAT) -> bytes:
    """Return a tar of these files."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tar_format) as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def by_webdataset(samples: Iterable[dict[str, Any]]) -> bytes:
    """Return a shard as webdataset writes it, with an extended header for each member."""
    out = io.BytesIO()
    with webdataset.TarWriter(out) as writer:
        for sample in samples:
            writer.write(sample)
    return out.getvalue()


def samples_of(begin: int, count: int, size_bytes: int = 1000) -> list[Member]:
    """Return the members of samples ``begin`` and so on: a picture of its number, and its class."""
    return [
        member
        for i in range(begin, begin + count)
        for member in (
            (f"{i:06d}.jpg", (b"%06d." % i * size_bytes)[:size_bytes]),
            (f"{i:06d}.cls", b"%d" % (i % 10)),
        )
    ]


def fill(store: headrace.Store, shards: int, count: int, size_bytes: int = 1000) -> None:
    """Write the shards ``shard-000.tar`` and so on, of `count` samples each."""
    for shard in range(shards):
        store.write(f"shard-{shard:03d}.tar", tar(samples_of(shard * count, count, size_bytes)))


def media(server: FaultServer) -> list[int]:
    """Return how many bytes of a body each read was sent."""
    return [each["bytes_sent"] for each in server.log() if each["kind"] == "media"]


def number_of(fields: dict[str, Any]) -> int:
    """Return the number of a sample of `samples_of`, which its fields must agree on."""
    number = int(fields["__key__"])
    assert fields["jpg"].bytes().startswith(b"%06d." % number)
    assert int(fields["cls"]) == number % 10
    return number


def zstd(data: bytes) -> bytes:
    """Return a zstd frame of these bytes, made by the system's library."""
    library = ctypes.CDLL("libzstd.so.1")
    for name in ("ZSTD_compressBound", "ZSTD_compress"):
        getattr(library, name).restype = ctypes.c_size_t
    library.ZSTD_compressBound.argtypes = [ctypes.c_size_t]
    library.ZSTD_compress.argtypes = [
        ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int,
    ]  # fmt: skip
    out = ctypes.create_string_buffer(library.ZSTD_compressBound(len(data)))
    size = library.ZSTD_compress(out, len(out), data, len(data), 3)
    return out.raw[:size]
