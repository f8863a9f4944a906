"""Listing all names of a bucket: headrace, Google's client page by page, dataflux's fast listing.

Each client checks, after the clock has stopped, that it has every name exactly once: the server
invents none, so as many different names as there are objects is all of them.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable
from typing import Any

from bench.clients.engine import store_of
from bench.clients.measure import Answer, cpu_s, family_cpu_s
from bench.clients.peers import google_client

FIRST_NAMES = 10_000


def _measured(
    request: Answer,
    list_all: Callable[[], Any],
    names_of: Callable[[Any], Iterable[str]],
    *,
    cpu: Callable[[], float] = cpu_s,
) -> Answer:
    begin_cpu_s, begin_s = cpu(), time.perf_counter()
    found = list_all()
    answer = {
        "wall_s": time.perf_counter() - begin_s,
        "cpu_s": cpu() - begin_cpu_s,
        "objects": request["object_count"],
    }
    names = list(names_of(found))
    if len(names) != request["object_count"] or len(set(names)) != len(names):
        raise AssertionError(f"{len(names)} names, {len(set(names))} of them different")
    return answer


def index(request: Answer) -> Answer:
    """headrace: Store.index(), which is in the byte order of the names."""
    from headrace import _engine

    store = store_of(request)
    options = {}
    if request.get("pages_in_flight"):
        options["max_pages_in_flight"] = request["pages_in_flight"]

    def names_of(found: Any) -> list[str]:
        names = [found.name(i) for i in range(len(found))]
        keys = [name.encode() for name in names]
        assert all(a < b for a, b in itertools.pairwise(keys)), "the names are out of order"
        return names

    indexes = []

    def list_all() -> Any:
        indexes.append(store.index(**options))
        return indexes[0]

    answer = _measured(request, list_all, names_of)
    return {**answer, "image_bytes": len(_engine.index_image(indexes[0]))}


def first_names(request: Answer) -> Answer:
    """headrace: how long a user waits for the first names of Store.list()."""
    store = store_of(request)
    begin_s = time.perf_counter()
    found = list(itertools.islice(store.list(), FIRST_NAMES))
    wall_s = time.perf_counter() - begin_s
    assert len({info.name for info in found}) == min(FIRST_NAMES, request["object_count"])
    return {"objects": len(found), "wall_s": wall_s}


def google_pages(request: Answer) -> Answer:
    """google-cloud-storage: page after page, only the fields that reading needs."""
    client = google_client(request["endpoint"], 10)

    def list_all() -> list[Any]:
        fields = "items(name,size,generation,crc32c),nextPageToken"
        return list(client.list_blobs(request["bucket"], fields=fields))

    return _measured(request, list_all, lambda found: (blob.name for blob in found))


def boto3_pages(request: Answer) -> Answer:
    """boto3: page after page."""
    from bench.clients.s3_peers import boto3_client

    client = boto3_client(request, 10)

    def list_all() -> list[str]:
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=request["bucket"])
        return [each["Key"] for page in pages for each in page.get("Contents", ())]

    return _measured(request, list_all, lambda names: names)


def dataflux(request: Answer) -> Answer:
    """dataflux_core's fast listing, by as many processes as are asked for, sorted like ours."""
    from dataflux_core.fast_list import ListingController

    controller = ListingController(
        max_parallelism=request["processes"],
        project="bench",
        bucket=request["bucket"],
        sort_results=True,
    )
    controller.client = google_client(request["endpoint"], 10)
    return _measured(
        request, controller.run, lambda found: (name for name, _ in found), cpu=family_cpu_s
    )
