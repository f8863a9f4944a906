"""What the tests of S3 have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import headrace

Configure = Callable[..., None]


@pytest.fixture
def configure() -> Iterator[Configure]:
    """`headrace.configure`, for one test."""
    headrace.shutdown()
    yield headrace.configure
    headrace.shutdown()
    headrace.configure()
