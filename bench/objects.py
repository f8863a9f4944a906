"""The objects that the benchmarks read: made once, the same bytes on every machine.

A bucket is a folder of files. Beside the folders lie the pages of the JSON listing that the real
service would give, CRC32C included, so that every read has something to be checked against.
"""

from __future__ import annotations

import base64
import io
import json
import resource
import shutil
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import google_crc32c
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from testing.servers.nginx import S3_HEADERS

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30

GENERATION = "1700000000000001"
_PIECE_BYTES = 16 * MIB
# Changes whenever other bytes or other files are made from the same description.
_FORMAT = 2


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """Objects `0`, `1`, ... whose sizes are `sizes_bytes`, over and over."""

    name: str
    object_count: int
    sizes_bytes: tuple[int, ...]

    def object_name(self, index: int) -> str:
        return f"object-{index:06d}"

    def size_bytes(self, index: int) -> int:
        return self.sizes_bytes[index % len(self.sizes_bytes)]

    def pieces(self, index: int) -> Iterator[bytes]:
        """The bytes of one object: a key stream, which no compression and no cache shortens."""
        nonce = f"{self.name}/{index}".encode().ljust(16, b"\0")[-16:]
        stream = Cipher(algorithms.AES(b"headrace bench 1"), modes.CTR(nonce)).encryptor()
        left_bytes = self.size_bytes(index)
        zeros = bytes(min(left_bytes, _PIECE_BYTES))
        while left_bytes > 0:
            piece = stream.update(zeros[: min(left_bytes, _PIECE_BYTES)])
            left_bytes -= len(piece)
            yield piece

    def media_paths(self, generation: str | None) -> list[str]:
        """What a client asks the server for, object by object."""
        query = "alt=media" + (f"&generation={generation}" if generation else "")
        quoted = [
            urllib.parse.quote(self.object_name(i), safe="") for i in range(self.object_count)
        ]
        return [f"/download/storage/v1/b/{self.name}/o/{name}?{query}" for name in quoted]

    def s3_paths(self) -> list[str]:
        """The same by S3's path style, without a signature."""
        return [f"/{self.name}/{self.object_name(i)}" for i in range(self.object_count)]


@dataclass(frozen=True, kw_only=True)
class Photos(Bucket):
    """JPEG images that are as hard to decode as photographs: 500 x 375, RGB, some 70 KiB."""

    def pieces(self, index: int) -> Iterator[bytes]:
        """One image: large shapes, fine ones, and some noise of the camera."""
        import numpy
        from PIL import Image

        random = numpy.random.Generator(numpy.random.PCG64(index))
        picture = numpy.zeros((375, 500, 3), numpy.float32)
        for width, height, strength in ((4, 3, 1.0), (20, 15, 0.5), (125, 94, 0.15)):
            shapes = random.integers(0, 256, (height, width, 3), numpy.uint8)
            larger = Image.fromarray(shapes).resize((500, 375), Image.Resampling.BICUBIC)
            picture += strength * (numpy.asarray(larger, numpy.float32) - 128)
        picture += random.normal(128, 10, picture.shape).astype(numpy.float32)
        file = io.BytesIO()
        image = Image.fromarray(picture.clip(0, 255).astype(numpy.uint8))
        image.save(file, "JPEG", quality=90)
        yield file.getvalue()


SMALL = Bucket(name="bench-1k", object_count=8_000, sizes_bytes=(1 * KIB,))
# Few enough for one of dataflux's listing calls: nginx serves fixed pages and no startOffset.
SMALL_FEW = Bucket(name="bench-1k-few", object_count=4_000, sizes_bytes=(1 * KIB,))
PHOTOS = Photos(name="bench-jpeg", object_count=1_000, sizes_bytes=())
MIDDLE = Bucket(name="bench-100k", object_count=2_000, sizes_bytes=(100 * KIB,))
MEBIBYTE = Bucket(name="bench-1m", object_count=256, sizes_bytes=(1 * MIB,))
MIXED = Bucket(
    name="bench-mixed",
    object_count=700,
    sizes_bytes=(0, 100, 4 * KIB, 31 * KIB, 33 * KIB, 300 * KIB, 2 * MIB),
)
LARGE = Bucket(name="bench-64m", object_count=8, sizes_bytes=(64 * MIB,))
HUGE = Bucket(name="bench-4g", object_count=1, sizes_bytes=(4 * GIB,))
# The same with a tenth of the work, for a run that only has to show that everything works.
HUGE_QUICK = Bucket(name="bench-512m", object_count=1, sizes_bytes=(512 * MIB,))


def _make(root: Path, bucket: Bucket) -> None:
    folder = root / bucket.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    items = []
    for index in range(bucket.object_count):
        name = bucket.object_name(index)
        crc32c = size_bytes = 0
        (folder / name).parent.mkdir(exist_ok=True)
        with (folder / name).open("wb") as file:
            for piece in bucket.pieces(index):
                size_bytes += len(piece)
                crc32c = google_crc32c.extend(crc32c, piece)
                file.write(piece)
        items.append(
            {
                "kind": "storage#object",
                "name": name,
                "bucket": bucket.name,
                "size": str(size_bytes),
                "generation": GENERATION,
                "crc32c": base64.b64encode(crc32c.to_bytes(4, "big")).decode(),
                "contentType": "application/octet-stream",
                "updated": "2026-01-01T00:00:00.000Z",
                "storageClass": "STANDARD",
            }
        )
    # All in one page: nginx cannot answer for a part of the names.
    listing = _listing_path(root, bucket)
    listing.parent.mkdir(parents=True, exist_ok=True)
    listing.write_text(json.dumps({"kind": "storage#objects", "items": items}))


def _listing_path(root: Path, bucket: Bucket) -> Path:
    return root.resolve() / "listings" / f"{bucket.name}.json"


def make(root: Path, buckets: tuple[Bucket, ...]) -> None:
    """Make what is missing below `root`."""
    for bucket in buckets:
        description = json.dumps([_FORMAT, repr(bucket)])
        stamp = root / f"{bucket.name}.made-from"
        if not stamp.exists() or stamp.read_text() != description:
            _make(root, bucket)
            stamp.write_text(description)


def listed(root: Path, bucket: Bucket) -> list[dict[str, str]]:
    """The entries of the listing, in order."""
    items: list[dict[str, str]] = json.loads(_listing_path(root, bucket).read_text())["items"]
    return items


def crc32c_of(item: dict[str, str]) -> int:
    """The sum that an entry of the listing gives."""
    return int.from_bytes(base64.b64decode(item["crc32c"]), "big")


def warm(root: Path, buckets: tuple[Bucket, ...]) -> None:
    """Read everything once: the page cache of the server's machine is no part of a comparison."""
    for bucket in buckets:
        for path in sorted(each for each in (root / bucket.name).rglob("*") if each.is_file()):
            with path.open("rb", buffering=0) as file:
                while file.read(_PIECE_BYTES):
                    pass


def sums(root: Path, buckets: tuple[Bucket, ...]) -> dict[str, dict[str, str]]:
    """The sums of all objects, for a server that looks like S3."""
    return {
        bucket.name: {item["name"]: item["crc32c"] for item in listed(root, bucket)}
        for bucket in buckets
    }


def nginx_locations(root: Path, buckets: tuple[Bucket, ...], *, s3: bool = False) -> str:
    """What makes nginx answer as the service does: listings, generations, and hashes of the large.

    The small objects come without a hash in their head, as the listing has told it; objects read
    by name alone have it, as a location each.
    """
    # nginx keeps files open, and stops to accept connections when it may open no more.
    open_files = min(resource.getrlimit(resource.RLIMIT_NOFILE)[1], 65536)
    lines = [
        f"add_header x-goog-generation {GENERATION};",
        f"open_file_cache max={open_files * 3 // 4} inactive=300s;",
    ]
    for bucket in buckets:
        lines.append(
            f"location = /storage/v1/b/{bucket.name}/o {{ default_type application/json; "
            f"alias {_listing_path(root, bucket)}; }}"
        )
        if bucket.object_count > 100:
            continue
        for item in listed(root, bucket):
            # Asked by whoever opens a file.
            metadata = root / "metadata" / bucket.name / item["name"]
            metadata.parent.mkdir(parents=True, exist_ok=True)
            metadata.write_text(json.dumps(item))
            lines.append(
                f"location = /{bucket.name}/{item['name']} {{ "
                f"add_header x-goog-generation {GENERATION}; "
                f"add_header x-goog-stored-content-length {item['size']}; "
                f"add_header x-goog-stored-content-encoding identity; "
                f"add_header x-goog-hash crc32c={item['crc32c']}; {S3_HEADERS if s3 else ''} }}"
            )
    return "\n    ".join(lines)
