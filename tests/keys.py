"""The keys with which tests sign requests to the fault server."""

from __future__ import annotations

import headrace

S3_KEYS = headrace.AwsKeys("AKIDHEADRACE", "a-secret/with+odd=characters")
