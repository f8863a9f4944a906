"""Which services there are that differ from S3, and a bucket at one of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import headrace
from testing.faultserver.client import FaultServer

LIKENESSES = [
    "crc64-only",
    "composite-only",
    "no-sums",
    "sums-501",
    "sums-400",
    "no-object-size",
    "no-conditions",
    "conditions-501",
    "conditions-400",
    "no-copy-sums",
    "equal-parts",
    "closes",
    "resets",
    "resets-next",
    "closes-idle",
    "short-root",
    "no-namespace",
    "prefix",
    "cdata",
    "no-delete-many",
    "file-tree",
    "stray-range",
    "no-reason",
]
"""All of testing/faultserver/README.md but `unordered`, whose listings are refused."""

WITHOUT_CONDITIONS = {"no-conditions", "conditions-501", "conditions-400", "s3mock"}
"""Those at which a write cannot depend on what is there."""


@dataclass(frozen=True)
class Service:
    """An empty bucket at a service."""

    name: str
    endpoint: str
    bucket: str
    options: dict[str, Any]
    server: FaultServer | None
    """Where the service is the fault server."""

    @property
    def url(self) -> str:
        return f"s3://{self.bucket}"

    def store(self, **options: Any) -> headrace.Store:
        return headrace.Store(self.url, endpoint=self.endpoint, **self.options, **options)
