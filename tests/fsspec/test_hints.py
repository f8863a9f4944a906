"""What programs give to every file system alike."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("fsspec")

import fsspec

import headrace.fsspec


@pytest.mark.parametrize(
    "hint",
    [
        {"block_size": 0},
        {"default_block_size": 1 << 20},
        {"encoding": "utf-8"},
        {"client_kwargs": {"trust_env": True}},
        {"cache_type": "readahead", "cache_options": {}},
    ],
)
def test_hints_of_a_host_are_passed_over(tmp_path: Path, hint: dict[str, object]) -> None:
    headrace.fsspec.register()
    (tmp_path / "a").write_bytes(b"text")
    fs = fsspec.filesystem("headrace+file", **hint)
    assert fs.cat(f"{tmp_path}/a") == b"text"


def test_an_endpoint_in_client_kwargs_is_no_hint() -> None:
    headrace.fsspec.register()
    with pytest.raises(TypeError, match="client_kwargs"):
        fsspec.filesystem("headrace+s3", client_kwargs={"endpoint_url": "http://127.0.0.1:9"})
