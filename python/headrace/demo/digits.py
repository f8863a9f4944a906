"""The UCI handwritten digits as PNG objects: ``train/<label>/<number>.png`` and ``test/...``."""

from __future__ import annotations

import io
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy
from PIL import Image

if TYPE_CHECKING:
    import torch

    from headrace import Sample, Store

# A write returns once it is durable, so most of its time is waiting.
_WRITERS = 32


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


def write(store: Store, prefix: str, objects: list[tuple[str, bytes]]) -> Iterator[str]:
    """Write `objects` below `prefix`, many at a time, and yield the name of each stored one."""

    def write_one(item: tuple[str, bytes]) -> str:
        return store.write(prefix + item[0], item[1], content_type="image/png").name

    with ThreadPoolExecutor(_WRITERS) as writers:
        yield from writers.map(write_one, objects)


def decode(sample: Sample) -> tuple[torch.Tensor, int, str]:
    """Return the image (``float32``, 1 x 8 x 8, 0 to 1), the label and the URL of a digit."""
    import torch

    with Image.open(io.BytesIO(memoryview(sample))) as image:
        pixels = numpy.array(image, dtype=numpy.float32)
    label = int(sample.url.rsplit("/", 2)[1])
    return torch.from_numpy(pixels).unsqueeze(0) / 255, label, sample.url


def augment(sample: Sample) -> tuple[torch.Tensor, int, str]:
    """Return the same for a digit shifted by up to a pixel and made darker or lighter.

    The random numbers depend only on the sample's seed: they are the same in every thread, and in a
    run that was resumed.
    """
    from torch import nn

    image, label, url = decode(sample)
    random = sample.rng().python
    # A crop of the digit with paper around it: what is shifted out must not come back in.
    top, left = random.randint(0, 2), random.randint(0, 2)
    around = nn.functional.pad(image, (1, 1, 1, 1))
    shifted = around[:, top : top + image.shape[1], left : left + image.shape[2]]
    return shifted * random.uniform(0.8, 1.2), label, url
