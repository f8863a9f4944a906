"""Clients that are not ours: each reads whole objects as fast as it was found to go."""

from __future__ import annotations

import asyncio
import itertools
import os
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from bench.clients.measure import (
    CHECKED_OBJECTS,
    Answer,
    batches_for,
    check_all,
    connections,
    measured,
    objects_of,
)


def _obstore(request: Answer) -> Any:
    """The bucket, without credentials where its server looks like Google's."""
    from obstore.store import HTTPStore, S3Store

    client_options = {"allow_http": True, "allow_invalid_certificates": True}
    if request.get("scheme") == "s3":
        return S3Store(
            request["bucket"],
            endpoint=request["endpoint"],
            region=request["region"],
            access_key_id=request["access_key"],
            secret_access_key=request["secret_key"],
            virtual_hosted_style_request=False,
            client_options=client_options,
        )
    return HTTPStore(
        f"{request['endpoint']}/download/storage/v1/b/{request['bucket']}/o",
        client_options=client_options,
    )


def obstore_many(request: Answer) -> Answer:
    """obstore: as many asyncio tasks as are asked for, each reading whole objects. No checksums."""
    store = _obstore(request)
    names, sums = objects_of(request)

    async def read_all(duration_s: float) -> tuple[int, int]:
        until = time.perf_counter() + duration_s
        order = itertools.cycle(names)
        object_count = size_bytes = 0

        async def reader() -> None:
            nonlocal object_count, size_bytes
            while time.perf_counter() < until:
                answer = await store.get_async(next(order))
                body = await answer.bytes_async()
                object_count += 1
                size_bytes += len(body)

        await asyncio.gather(*(reader() for _ in range(request["concurrency"])))
        return object_count, size_bytes

    async def first() -> list[Any]:
        async def read_one(name: str) -> Any:
            return await (await store.get_async(name)).bytes_async()

        return await asyncio.gather(*(read_one(name) for name in names[:CHECKED_OBJECTS]))

    with asyncio.Runner() as runner:
        check_all(names[:CHECKED_OBJECTS], runner.run(first()), sums[:CHECKED_OBJECTS])

        def read(duration_s: float) -> tuple[int, int]:
            return runner.run(read_all(duration_s))

        read(request["warm_up_s"])
        return measured(read, request["duration_s"])


def obstore_batches(request: Answer) -> Answer:
    """obstore: batch after batch, the objects of each at once. No checksums."""
    store = _obstore(request)
    names, _ = objects_of(request)

    async def read_one(name: str) -> int:
        return len(await (await store.get_async(name)).bytes_async())

    async def read_all(duration_s: float) -> tuple[int, int]:
        object_count = size_bytes = 0
        for batch in batches_for(names, request["batch_size"], duration_s):
            sizes = await asyncio.gather(*(read_one(name) for name in batch))
            object_count += len(sizes)
            size_bytes += sum(sizes)
        return object_count, size_bytes

    with asyncio.Runner() as runner:

        def read(duration_s: float) -> tuple[int, int]:
            return runner.run(read_all(duration_s))

        read(request["warm_up_s"])
        return measured(read, request["duration_s"])


def obstore_into(request: Answer) -> Answer:
    """obstore: the large object by ranges of 8 MiB, 16 at once, copied to the caller's memory."""
    import numpy

    store = _obstore(request)
    ((name,), _) = objects_of(request)
    memory = numpy.full(request["size_bytes"], 255, dtype=numpy.uint8)
    range_bytes = 8 << 20

    async def read_all() -> None:
        begins = iter(range(0, len(memory), range_bytes))

        async def reader() -> None:
            for begin in begins:
                end = min(begin + range_bytes, len(memory))
                body = await store.get_range_async(name, start=begin, end=end)
                memory[begin:end] = numpy.frombuffer(body, dtype=numpy.uint8)

        await asyncio.gather(*(reader() for _ in range(16)))

    def read(_: float) -> tuple[int, int]:
        asyncio.run(read_all())
        return 1, len(memory)

    return measured(read, 0)


def obstore_put(request: Answer) -> Answer:
    """obstore: the large object by parts of 16 MiB, 16 at once, from the caller's memory."""
    import numpy
    import obstore

    store = _obstore(request)
    memory = numpy.fromfile(request["file"], dtype=numpy.uint8)

    def write(_: float) -> tuple[int, int]:
        obstore.put(store, request["object_name"], memory, chunk_size=16 << 20, max_concurrency=16)
        return 1, len(memory)

    return measured(write, 0)


def google_client(endpoint: str, connection_count: int) -> Any:
    """google-cloud-storage's client of a server without accounts.

    Its pool would hold ten connections and throw the others away after each use.
    """
    import requests.adapters
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage

    client = storage.Client(
        project="bench",
        credentials=AnonymousCredentials(),
        client_options={"api_endpoint": endpoint},
    )
    adapter = requests.adapters.HTTPAdapter(
        pool_connections=connection_count, pool_maxsize=connection_count
    )
    client._http.mount("http://", adapter)
    return client


def read_by_threads(read_one: Callable[[str], bytes], request: Answer) -> Answer:
    """As many threads as are asked for, each reading whole objects by their names."""
    names, sums = objects_of(request)
    first = names[:CHECKED_OBJECTS]
    with ThreadPoolExecutor(request["concurrency"]) as pool:
        check_all(first, pool.map(read_one, first), sums[:CHECKED_OBJECTS])

    def read(duration_s: float) -> tuple[int, int]:
        until = time.perf_counter() + duration_s
        order = itertools.cycle(names)
        lock = threading.Lock()
        answers: queue.Queue[tuple[int, int] | BaseException] = queue.Queue()

        def reader() -> None:
            object_count = size_bytes = 0
            try:
                while time.perf_counter() < until:
                    with lock:
                        name = next(order)
                    size_bytes += len(read_one(name))
                    object_count += 1
            except BaseException as error:
                answers.put(error)
                raise
            answers.put((object_count, size_bytes))

        threads = [threading.Thread(target=reader) for _ in range(request["concurrency"])]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        results = [answers.get() for _ in threads]
        for result in results:
            if isinstance(result, BaseException):
                raise result
        totals = [result for result in results if isinstance(result, tuple)]
        return sum(t[0] for t in totals), sum(t[1] for t in totals)

    read(request["warm_up_s"])
    return measured(read, request["duration_s"])


def read_by_batches(
    read_all: Callable[[list[str]], list[Any]], paths: list[str], request: Answer
) -> Answer:
    """Batches of as many objects as are asked for, each of them by one call."""
    _, sums = objects_of(request)
    first = paths[:CHECKED_OBJECTS]
    check_all(first, read_all(first), sums[:CHECKED_OBJECTS])

    def read(duration_s: float) -> tuple[int, int]:
        object_count = size_bytes = 0
        for batch in batches_for(paths, request["concurrency"], duration_s):
            bodies = read_all(batch)
            object_count += len(bodies)
            size_bytes += sum(map(len, bodies))
        return object_count, size_bytes

    read(request["warm_up_s"])
    answer = measured(read, request["duration_s"])
    answer["connections"] = connections(request["endpoint"])
    return answer


def fsspec_many(filesystem: Any, request: Answer) -> Answer:
    """`cat` of a batch of names, all of the batch at once."""
    names, _ = objects_of(request)

    def cat(batch: list[str]) -> list[bytes]:
        bodies = filesystem.cat(batch, batch_size=request["concurrency"])
        return [bodies[path] for path in batch]

    return read_by_batches(cat, [f"{request['bucket']}/{name}" for name in names], request)


def google_many(request: Answer) -> Answer:
    """google-cloud-storage: threads, each downloading whole objects."""
    bucket = google_client(request["endpoint"], request["concurrency"]).bucket(request["bucket"])
    return read_by_threads(lambda name: bucket.blob(name).download_as_bytes(), request)


def gcsfs_many(request: Answer) -> Answer:
    """gcsfs: `cat` of a batch of names, all of the batch at once."""
    # Else it asks Google by gRPC and TLS what kind of bucket this is, and gives up after a minute.
    os.environ["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"] = "false"
    import gcsfs

    filesystem = gcsfs.GCSFileSystem(
        project="bench", token="anon", endpoint_url=request["endpoint"]
    )
    return fsspec_many(filesystem, request)
