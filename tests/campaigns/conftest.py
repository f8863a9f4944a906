"""What campaigns keep from case to case."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("lightning")

from collections.abc import Iterator

from tests.campaigns.campaign import Campaign


@pytest.fixture(scope="module")
def campaign() -> Iterator[Campaign]:
    """Runs cases, each in a bucket of its own; ranks stay from case to case.

    Of this module alone: while it lives all writers write small parts, and there are processes.
    """
    with Campaign() as campaign:
        yield campaign
