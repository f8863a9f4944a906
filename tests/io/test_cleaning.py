"""What a killed writer leaves, and that it can be swept away."""

from __future__ import annotations

import datetime
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace._checkpoints.cleaning import clean
from testing.faultserver.client import FaultServer
from tests.killed import kill_when_written

SCRIPT = """
import os, sys
import headrace
store = headrace.Store("gs://bucket", endpoint=sys.argv[1])
with headrace.open("a", "wb", store=store, part_bytes=5 << 20, upload=sys.argv[2]) as file:
    while True:
        file.write(os.urandom(11 << 20))
        print("written", flush=True)
"""


@pytest.mark.parametrize("way", ["parts", "multipart"])
def test_what_sigkill_leaves_is_swept(gcs: headrace.Store, server: FaultServer, way: str) -> None:
    gcs.write("a", b"before")
    gcs.write("headrace-uploads/of somebody else", b"stays")
    kill_when_written(server, SCRIPT, way, times=3)
    left = len(server.names("bucket")) - 2 + len(server.uploads()["multipart"])
    assert left >= 1
    assert len(server.uploads()["multipart"]) == (1 if way == "multipart" else 0)
    looked = clean(gcs, older_than_s=0, dry_run=True)
    assert len(looked.deleted) + len(looked.uploads) == left
    assert not clean(gcs, older_than_s=3600).deleted
    swept = clean(gcs, older_than_s=0)
    assert len(swept.deleted) + len(swept.uploads) == left
    assert server.names("bucket") == ["a", "headrace-uploads/of somebody else"]
    assert server.uploads()["multipart"] == []
    assert server.get("bucket", "a") == b"before"


def test_what_was_used_lately_stays_where_no_time_of_the_write_is_known(
    ais_server: FaultServer, ais: headrace.Store
) -> None:
    torn = f"run/step-1/__0_0-{1:032x}.distcp"
    old, young = f"headrace-uploads/{7:032x}/a", f"headrace-uploads/{8:032x}/a"
    for name, age_s in ((old, 7200), (torn, 7200), (young, 60)):
        ais_server.put("bucket", name, b"left", ageSeconds=age_s)
    for hours in (1, 3):
        swept = clean(ais, older_than_s=hours * 3600, checkpoints=True, dry_run=True)
        assert [info.name for info in swept.deleted] == ([old, torn] if hours == 1 else [])
        assert len(swept.younger) == (1 if hours == 1 else 3)
    swept = clean(ais, older_than_s=3600, checkpoints=True)
    assert [info.name for info in swept.deleted] == [old, torn]
    assert not swept.failed
    assert ais_server.names("bucket") == [young]
    clean(ais, older_than_s=0)
    assert ais_server.names("bucket") == []


def test_of_a_real_cluster_only_what_is_old_is_swept(ais_cluster: Any, ais_bucket: str) -> None:
    store = headrace.Store(f"ais://{ais_bucket}", endpoint=ais_cluster.url)
    name = f"headrace-uploads/{7:032x}/a"
    store.write(name, b"left")
    assert store.stat(name).updated is None
    written_s = time.time()
    assert [info.name for info in clean(store, older_than_s=3600).younger] == [name]
    # Old is what was last used before the moment in question: seen from later, this one.
    moment = datetime.datetime.now(datetime.UTC)
    used = store.stat(name)._last_use  # type: ignore[attr-defined]
    assert used is not None
    assert abs(used.timestamp() - written_s) < 60
    assert used <= moment
    while not clean(store, older_than_s=0.001).deleted:
        pass
    assert not list(store.list())


def test_a_temporary_file_is_no_object(tmp_path: Path) -> None:
    store = headrace.Store(tmp_path)
    for name in (".headrace-tmp-1-2-3", "a/.headrace-tmp-1-2-3"):
        (tmp_path / "a").mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"half")
    store.write("a/b", b"whole")
    os.utime(tmp_path / "a" / "b", (100, 100))
    assert [info.name for info in store.list()] == ["a/b"]
    assert store.list_page(delimiter="/").prefixes == ["a/"]
    assert [info.name for info in store.index()] == ["a/b"]
    assert headrace.checkpoint.latest(tmp_path) is None
    with pytest.raises(headrace.InvalidArgumentError, match="are kept for files that are being"):
        store.write("a/.headrace-tmp-1-2-3", b"mine")


FILES_SCRIPT = """
import sys
import headrace
store = headrace.Store(sys.argv[1])
number = 0
while True:
    number += 1
    with headrace.open("a", "wb", store=store, part_bytes=1 << 16) as file:
        for _ in range(3):
            file.write(bytes([number % 256]) * (1 << 16))
    store.write("b/c", bytes([number % 256]) * 1000)
    print(number, flush=True)
"""


@pytest.mark.parametrize("seed", range(8))
def test_of_files_sigkill_leaves_whole_ones_and_what_is_swept(tmp_path: Path, seed: int) -> None:
    choose = random.Random(seed)
    store = headrace.Store(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", FILES_SCRIPT, str(tmp_path)], stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        # Wherever it is by then.
        child.stdout.read(choose.randrange(200))
        child.send_signal(signal.SIGKILL)
    for name, size in (("a", 3 << 16), ("b/c", 1000)):
        data = store.read(name).bytes()
        assert data == data[:1] * size
    assert [info.name for info in store.list()] == ["a", "b/c"]
    clean(store, older_than_s=0)
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]
    assert os.listdir(tmp_path / "b") == ["c"]


def test_what_is_swept_is_named_as_everywhere_else(gcs: headrace.Store) -> None:
    left = [f"run/headrace-uploads/{number:032x}/0" for number in range(2)]
    provider = headrace.GcsOptions(temporary_prefix="run")
    for name in left:
        gcs.write(name, b"x")
    store = gcs._derived(provider=provider)
    for at in (
        lambda **more: clean(store, **more),
        lambda **more: clean(store=store, **more),
        lambda **more: clean("run", store=store, **more),
        lambda **more: clean(f"{store.url}/run", store=store, **more),
    ):
        swept = at(older_than_s=0, dry_run=True)
        assert [info.name for info in swept.deleted] == left
    with pytest.raises(headrace.InvalidArgumentError, match="two stores"):
        clean(store, store=store)
    with pytest.raises(headrace.InvalidArgumentError, match="endpoint= belongs to the store"):
        clean(store, endpoint="http://127.0.0.1:1")
    with pytest.raises(headrace.InvalidArgumentError, match="lies outside"):
        clean("gs://other", store=store)
