"""headrace.pack: a bucket of small objects becomes tar shards in a folder."""

from __future__ import annotations

import resource
import tarfile
import tempfile
import time
from pathlib import Path

from bench.clients.engine import store_of
from bench.clients.measure import Answer, check, connections, measured, objects_of

_SHARD_BYTES = 64 << 20  # so that there are some for each worker


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def pack(request: Answer) -> Answer:
    """Pack everything once to warm up, compare it, and then again and again until the time is up"""
    import headrace

    store = store_of(request)
    index = store.index()
    # In memory: files are durable once they are written, and no disk is measured here.
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:

        def once(number: int) -> headrace.Packed:
            return headrace.pack(
                index, Path(folder, str(number)), shard_bytes=_SHARD_BYTES,
                endpoint=request["endpoint"], overwrite=True,
            )  # fmt: skip

        once(0)
        sums = dict(zip(*objects_of(request), strict=True))
        for path in sorted(Path(folder, "0").glob("*.tar")):
            with tarfile.open(path) as archive:
                for member in archive:
                    file = archive.extractfile(member)
                    assert file is not None
                    check(member.name, file.read(), sums.pop(member.name))
        assert not sums
        before_bytes = _peak_bytes()

        def read(duration_s: float) -> tuple[int, int]:
            until = time.perf_counter() + duration_s
            number = samples = size_bytes = 0
            while time.perf_counter() < until:
                packed = once(number := 1 - number)
                samples += packed.samples
                size_bytes += packed.source_bytes
            return samples, size_bytes

        answer = measured(read, request["duration_s"])
    return {
        **answer,
        "connections": connections(request["endpoint"]),
        "more_peak_bytes": _peak_bytes() - before_bytes,
    }
