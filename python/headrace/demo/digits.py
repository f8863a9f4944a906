"""The UCI handwritten digits as PNG objects: ``train/<label>/<number>.png`` and ``test/...``; or in
tar shards, ``train/<number>.tar``, with the fields ``png`` and ``cls``.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy
from PIL import Image

from headrace import Sample

if TYPE_CHECKING:
    import torch

    from headrace import Store

# A write returns once it is durable, so most of its time is waiting.
_WRITERS = 32
_SAMPLES_PER_SHARD = 100


def png_objects() -> list[tuple[str, bytes]]:
    """Return the names and PNGs of scikit-learn's 1,797 digits; every fifth is for testing."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    objects = []
    for number, (image, label) in enumerate(zip(digits.images, digits.target, strict=True)):
        png = io.BytesIO()
        # 8 x 8 pixels, from 0 (paper) to 16 (ink)
        Image.fromarray((image * 255 / 16).astype(numpy.uint8)).save(png, "png")
        part = "test" if number % 5 == 0 else "train"
        objects.append((f"{part}/{label}/{number:04d}.png", png.getvalue()))
    return objects


def shards_of(objects: list[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    """Return tars with the images and labels of `objects`: each sample is a PNG and its class."""
    shards = []
    for part, members in groupby(sorted(objects), lambda item: item[0].split("/")[0]):
        # By number, so that each shard has all labels.
        samples = sorted(members, key=lambda item: item[0].rsplit("/")[-1])
        for shard, begin in enumerate(range(0, len(samples), _SAMPLES_PER_SHARD)):
            out = io.BytesIO()
            with tarfile.open(fileobj=out, mode="w") as tar:
                for name, png in samples[begin : begin + _SAMPLES_PER_SHARD]:
                    _, label, file = name.split("/")
                    for field, data in ((file, png), (f"{file[:-4]}.cls", label.encode())):
                        member = tarfile.TarInfo(field)
                        member.size = len(data)
                        tar.addfile(member, io.BytesIO(data))
            shards.append((f"{part}/{shard:03d}.tar", out.getvalue()))
    return shards


def write(store: Store, prefix: str, objects: list[tuple[str, bytes]]) -> Iterator[str]:
    """Write `objects` below `prefix`, many at a time, and yield the name of each stored one."""

    def write_one(item: tuple[str, bytes]) -> str:
        kind = "image/png" if item[0].endswith(".png") else "application/x-tar"
        return store.write(prefix + item[0], item[1], content_type=kind).name

    with ThreadPoolExecutor(_WRITERS) as writers:
        yield from writers.map(write_one, objects)


Digit = Sample | Mapping[str, Any]
"""An object, or a sample of a shard, with its fields."""


def decode(digit: Digit) -> tuple[torch.Tensor, int, str]:
    """Return a digit's image (``float32``, 1 x 8 x 8, 0 to 1), its label and where it is."""
    import torch

    if isinstance(digit, Sample):
        png, label, place = digit, digit.url.rsplit("/", 2)[1], digit.url
    else:
        png, label = digit["png"], digit["cls"]
        place = f"{digit['__url__']}/{digit['__key__']}"
    with Image.open(io.BytesIO(memoryview(png))) as image:
        pixels = numpy.array(image, dtype=numpy.float32)
    return torch.from_numpy(pixels).unsqueeze(0) / 255, int(label), place


def augment(digit: Digit) -> tuple[torch.Tensor, int, str]:
    """Return the same for a digit shifted by up to a pixel and made darker or lighter.

    The random numbers depend only on the sample's seed: they are the same in every thread, and in a
    run that was resumed.
    """
    from torch import nn

    image, label, place = decode(digit)
    random = (digit if isinstance(digit, Sample) else digit["png"]).rng().python
    # A crop of the digit with paper around it: what is shifted out must not come back in.
    top, left = random.randint(0, 2), random.randint(0, 2)
    around = nn.functional.pad(image, (1, 1, 1, 1))
    shifted = around[:, top : top + image.shape[1], left : left + image.shape[2]]
    return shifted * random.uniform(0.8, 1.2), label, place
