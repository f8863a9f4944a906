"""Rooms of the engine include what src/headrace/CMakeLists.txt says, and clang refuses the rest."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Of every room, a header by which it is told: (of which room, header).
HEADERS = {
    "base": "base/result.h",
    "format": "format/url.h",
    "http": "http/message.h",
    "store": "store/root.h",
    "store_timeline": "store/timeline/timeline.h",
    "store_transfer": "store/transfer/retry.h",
    "store_reading": "store/reading/http_reader.h",
    "store_listing": "store/listing/listing.h",
    "store_writing": "store/writing/uploads.h",
    "store_remote": "store/remote/http_store.h",
    "store_s3": "store/s3/s3_protocol.h",
    "dataset": "dataset/order.h",
    "shards": "shards/shard_read.h",
    "top": "engine.h",
}


def preprocess(room: str, header: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A file with this include, as a file of the room would be compiled."""
    commands = json.loads((ROOT / "build/release/compile_commands.json").read_text())
    command = next(each for each in commands if f"headrace_{room}.dir/" in each["command"])
    arguments = shlex.split(command["command"])
    compiler = next(i for i, each in enumerate(arguments) if "clang++" in each)
    arguments = arguments[compiler : arguments.index("-o")]
    source = folder / "one.cc"
    source.write_text(f'#include "headrace/{header}"\n')
    return subprocess.run(
        [*(each for each in arguments if each != "-MD"), "-E", "-o", "/dev/null", str(source)],
        cwd=command["directory"],
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(
    ("room", "other"),
    [
        ("format", "base"),
        ("store_s3", "store"),
        ("store_reading", "store_transfer"),
        ("store_remote", "store_writing"),
        ("shards", "store"),
        ("top", "store_remote"),
    ],
)
def test_a_room_may_include_one_below_it(room: str, other: str, tmp_path: Path) -> None:
    done = preprocess(room, HEADERS[other], tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("room", "other"),
    [
        ("base", "format"),
        ("format", "http"),
        ("http", "store"),
        ("store", "store_transfer"),
        ("store_timeline", "store"),
        ("store_s3", "store_transfer"),
        ("store_transfer", "store_reading"),
        ("store_reading", "store_writing"),
        ("store_writing", "store_listing"),
        ("store_writing", "store_remote"),
        ("dataset", "store"),
        ("shards", "store_remote"),
        ("store_remote", "top"),
    ],
)
def test_a_room_that_includes_another_one_does_not_compile(
    room: str, other: str, tmp_path: Path
) -> None:
    done = preprocess(room, HEADERS[other], tmp_path)
    assert done.returncode != 0
    assert f"module headrace_{room} does not" in done.stderr
    assert HEADERS[other] in done.stderr
