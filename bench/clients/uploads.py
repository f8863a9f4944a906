"""headrace writes one large object, again and again."""

from __future__ import annotations

import os
import time

import headrace
from bench.clients.measure import Answer, cpu_s


def upload(request: Answer) -> Answer:
    """The CPU and the time of each upload but the first, which opens the connections.

    `level`: of the sums of an upload to `s3://`; `way`: how one to `gs://` is sent.
    """
    data = os.urandom(request["size_bytes"])
    if request["scheme"] == "s3":
        store = headrace.Store(
            "s3://bucket",
            endpoint=request["endpoint"],
            credentials=headrace.AwsKeys("headrace", "secret"),
            provider=headrace.S3Options(checksum=request["level"]),
        )
    else:
        store = headrace.Store("gs://bucket", endpoint=request["endpoint"])

    def once() -> None:
        writer = store.open_writer("object", upload=request.get("way"))
        writer.write_lent(data)
        writer.close()

    once()
    begin_requests = headrace.metrics().requests_total
    begin_cpu_s, begin_s = cpu_s(), time.perf_counter()
    for _ in range(request["count"]):
        once()
    return {
        "objects": request["count"],
        "bytes": request["count"] * len(data),
        "wall_s": time.perf_counter() - begin_s,
        "cpu_s": cpu_s() - begin_cpu_s,
        "requests": (headrace.metrics().requests_total - begin_requests) // request["count"],
    }
