"""Tests of safetensors need torch, and the library that wrote the format."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")
