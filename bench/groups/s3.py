"""`s3://`: beside `gs://` on the same server, beside other clients of S3, and what servers give."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import google_crc32c

from bench import curl, objects
from bench.groups import checkpoints, listing
from bench.harness import (
    LATENCY_S,
    S3,
    Answer,
    Bench,
    Client,
    Connections,
    cpu_us,
    rate_ratios,
    ratios,
)
from bench.objects import GIB, KIB, MIB, Bucket
from testing.faultserver.client import FaultServer
from testing.servers import Certificates, Nginx
from testing.servers.minio import ACCESS_KEY, REGION, SECRET_KEY, MinioServer
from testing.servers.s3_client import client_of

# How much each other client reads at once: less, and more, than its documentation recommends. What
# is best depends on the machine, so the best of them counts.
PEERS = {
    "s3torchconnector": (8, 16, 64),
    "obstore": (8, 16, 64),
    "s3fs": (64, 256),
    "boto3": (8, 32),
    "s3dlio": (32, 128),
}
TLS_PEERS = ("obstore", "boto3", "s3dlio", "s3torchconnector")
LATENCY_CONCURRENCY = 512
BUCKET = "bucket"


def _presigned_paths(server: Nginx, bucket: Bucket) -> list[str]:
    """What a client without a signer of its own asks for: botocore signs, by the query."""
    with client_of(server.url, signature_version="s3v4") as client:
        urls = (
            client.generate_presigned_url(
                "get_object",
                {"Bucket": bucket.name, "Key": bucket.object_name(index)},
                ExpiresIn=86_400,
            )
            for index in range(bucket.object_count)
        )
        return [url.removeprefix(server.url) for url in urls]


def _small(
    bench: Bench,
    server: Nginx,
    bucket: Bucket,
    *,
    at_most_ratio: float,
    at_least_share: float,
) -> None:
    """Objects of one size: both schemes and wrk in turn, then we and the other clients."""
    group = f"s3://, {bucket.sizes_bytes[0] // KIB} KiB, nginx"
    connections = Connections()

    def headrace(**request: Any) -> Client:
        return connections.of(lambda: bench.many("headrace", server.url, bucket, **request))

    def wrk(paths: list[str]) -> Client:
        return lambda: bench.wrk(
            server.url, bucket, connection_count=connections.count, paths=paths
        )

    answers = bench.alternate(
        group,
        {
            "gs://": headrace(),
            "s3://": headrace(**S3),
            "wrk, presigned": wrk(_presigned_paths(server, bucket)),
            "wrk, unsigned": wrk(bucket.s3_paths()),
        },
        bench.effort.repetitions,
    )
    ours = answers["s3://"]
    bench.row(
        group,
        "s3://: client CPU per object, over gs://",
        "",
        ratios(cpu_us(ours), cpu_us(answers["gs://"])),
        at_most=at_most_ratio,
    )
    for name, target in (("wrk, presigned", at_least_share), ("wrk, unsigned", None)):
        shares = rate_ratios(ours, answers[name])
        bench.row(group, f"s3://: objects/s, share of {name}", "", shares, at_least=target)
    for name, found in answers.items():
        bench.cpu(group, name, found)
        bench.rates(group, name, found)
    bench.row(group, "s3://: connections", "", [a["connections"] for a in ours])
    _peers(bench, group, server, bucket)


def _peers(
    bench: Bench,
    group: str,
    server: Nginx,
    bucket: Bucket,
    *,
    names: Iterable[str] = PEERS,
    at_most: float = 1 / 3,
    **common: Any,
) -> None:
    def client(name: str, **request: Any) -> Client:
        return lambda: bench.many(name, server.url, bucket, **S3, **request, **common)

    settings = {
        f"{name}, {concurrency} at once": client(name, concurrency=concurrency)
        for name in names
        for concurrency in PEERS[name]
    }
    answers = bench.alternate(
        group, {"headrace": client("headrace"), **settings}, bench.effort.peer_repetitions
    )
    ours = cpu_us(answers.pop("headrace"))
    measured = [cpu_us(found) for found in answers.values() if found]
    least = [min(each) for each in zip(*measured, strict=True)]
    bench.row(
        group,
        "s3://: client CPU per object, share of the best other client's",
        "",
        ratios(ours, least),
        at_most=at_most,
    )
    for name, found in answers.items():
        bench.cpu(group, name, found)
        bench.rates(group, name, found)


def small(bench: Bench) -> None:
    """100 KiB and 1 KiB; one server looks like both services."""
    with bench.nginx(objects.MIDDLE, objects.SMALL, s3=True) as server:
        _small(bench, server, objects.MIDDLE, at_most_ratio=1.15, at_least_share=1.0)
        _small(bench, server, objects.SMALL, at_most_ratio=1.2, at_least_share=0.8)


def tls(bench: Bench) -> None:
    """The other clients again, those that can be told of a CA, over TLS 1.3."""
    certificates = Certificates(bench.folder / "certificates")
    ca_file = str(certificates.ca_file)
    env = {"SSL_CERT_FILE": ca_file, "AWS_CA_BUNDLE": ca_file}
    buckets = (objects.MIDDLE, objects.SMALL)
    with bench.nginx(*buckets, s3=True, certificates=certificates) as server:
        for bucket in buckets:
            group = f"s3://, {bucket.sizes_bytes[0] // KIB} KiB, nginx, TLS"
            _peers(bench, group, server, bucket, names=TLS_PEERS, at_most=0.5, env=env)


def latency(bench: Bench) -> None:
    """100 KiB, when each first byte takes 30 ms."""
    group = f"s3://, 100 KiB, nginx, first byte after {LATENCY_S * 1e3:.0f} ms"
    bucket = objects.MIDDLE
    with bench.nginx(bucket, s3=True, latency_s=LATENCY_S) as server:

        def client(name: str, **request: Any) -> Client:
            warm_up_s = 2 * bench.effort.duration_s
            return lambda: bench.many(name, server.url, bucket, warm_up_s=warm_up_s, **request)

        answers = bench.alternate(
            group,
            {
                "gs://": client("headrace"),
                "s3://": client("headrace", **S3),
                "wrk": lambda: bench.wrk(
                    server.url,
                    bucket,
                    connection_count=LATENCY_CONCURRENCY,
                    paths=bucket.s3_paths(),
                ),
                "obstore": client("obstore", concurrency=LATENCY_CONCURRENCY, **S3),
            },
            bench.effort.repetitions,
        )
    shares = rate_ratios(answers["s3://"], answers["gs://"])
    bench.row(group, "s3://: objects/s, over gs://", "", shares, at_least=0.95)
    for name, found in answers.items():
        bench.rates(group, name, found)
        bench.cpu(group, name, found)


def large(bench: Bench) -> None:
    """One large object: from nginx, to the fault server, which sums up what it gets.

    curl, which throws away what it reads, shows what receiving costs on this machine.
    """
    bucket = bench.effort.huge
    size_bytes = bucket.sizes_bytes[0]
    group = f"s3://, one object of {size_bytes / GIB:g} GiB"
    with bench.nginx(bucket, s3=True) as server:
        raw_url = server.url + _presigned_paths(server, bucket)[0]
        answers = bench.alternate(
            group,
            {
                "headrace": lambda: bench.many("headrace-into", server.url, bucket, **S3),
                "obstore": lambda: bench.many(
                    "obstore-into", server.url, bucket, size_bytes=size_bytes, **S3
                ),
                "curl": lambda: curl.get(raw_url, size_bytes=size_bytes),
            },
            bench.effort.peer_repetitions,
        )
        _large_rows(bench, group, "from nginx", answers, at_most_cpu_s=0.35)
    # MD5 is what the service's own machines compute.
    with FaultServer(dialect="s3", threads=2, md5=False) as fault_server:
        answers = bench.alternate(
            group,
            {
                name: _upload(bench, fault_server, client, bucket)
                for name, client in (("headrace", "headrace-put"), ("obstore", "obstore-put"))
            },
            bench.effort.peer_repetitions,
        )
        _large_rows(bench, group, "to the fault server", answers, at_most_cpu_s=0.5)


def _upload(bench: Bench, server: FaultServer, name: str, bucket: Bucket) -> Client:
    """One upload, whose bytes are read back and compared afterwards, and then dropped."""
    (item,) = objects.listed(bench.root, bucket)

    def run() -> Answer:
        server.bucket(BUCKET)
        answer = bench.client(
            name,
            endpoint=server.url,
            bucket=BUCKET,
            object_name=item["name"],
            file=str(bench.root / bucket.name / item["name"]),
            timeout_s=300,
            **S3,
        )
        crc32c = 0
        with client_of(server.url, response_checksum_validation="when_required") as client:
            with client.get_object(Bucket=BUCKET, Key=item["name"])["Body"] as body:
                while piece := body.read(MIB):
                    crc32c = google_crc32c.extend(crc32c, piece)
            client.delete_object(Bucket=BUCKET, Key=item["name"])
        if crc32c != objects.crc32c_of(item):
            raise AssertionError(f"{name}: other bytes arrived than were sent")
        return answer

    return run


def _large_rows(
    bench: Bench, group: str, where: str, answers: dict[str, list[Answer]], *, at_most_cpu_s: float
) -> None:
    for name, found in answers.items():
        target = {"at_most": at_most_cpu_s} if name == "headrace" else {}
        cpu_s = [each["cpu_s"] / (each["bytes"] / GIB) for each in found]
        bench.row(group, f"{where}, {name}: client CPU per GiB", "s", cpu_s, **target)
        rates = [each["bytes"] / GIB / each["wall_s"] for each in found]
        bench.row(group, f"{where}, {name}: GiB/s", "", rates)


def checkpoint(bench: Bench) -> None:
    """Checkpoints on MinIO, whose files lie in memory: plain ones, and DCP's by one rank."""
    for gib in filter(lambda gib: gib <= 1, bench.effort.checkpoint_repetitions):
        with MinioServer(buckets=(checkpoints.BUCKET,), parent="/dev/shm") as server:
            _checkpoints(bench, server, gib)


def _checkpoints(bench: Bench, server: MinioServer, gib: float) -> None:
    size_bytes = int(gib * GIB)
    place = {
        "bucket": checkpoints.BUCKET,
        "endpoint": server.url,
        "size_bytes": size_bytes,
        "scheme": "s3",
        "region": REGION,
        "access_key": ACCESS_KEY,
        "secret_key": SECRET_KEY,
    }
    # Its default, and larger parts; of DCP also the thread count of its documentation.
    settings: dict[str, dict[str, Any]] = {
        f"s3torchconnector, parts of {mib} MiB": {"part_bytes": mib * MIB} for mib in (8, 32)
    }
    threads = {
        f"{name}, {count} threads": {**each, "thread_count": count}
        for name, each in settings.items()
        for count in (1, 8)
    }
    for what, at_least_times, each in (
        ("save", 3, settings),
        ("load", 4, settings),
        ("dcp-save", 3, threads),
        ("dcp-load", 4, settings),
    ):
        # Each loads what it has saved itself.
        way = what.removesuffix("save").removesuffix("load")
        mine, its = ({**place, "saved_as": f"{way}{by}"} for by in ("headrace", "other"))
        peer = "s3torchconnector"
        checkpoints.compare(
            bench,
            f"s3://, a checkpoint of {gib:g} GiB, MinIO",
            what,
            checkpoints.client(bench, what, "headrace", mine),
            _raw_save(server, size_bytes) if "save" in what else _raw_load(server, size_bytes),
            {
                peer: {
                    name: checkpoints.client(bench, what, peer, {**its, **setting})
                    for name, setting in each.items()
                }
            },
            gib,
            at_least_times=at_least_times,
        )


@contextmanager
def _presigner(server: MinioServer) -> Iterator[Any]:
    key = {"access_key": ACCESS_KEY, "secret_key": SECRET_KEY}
    with client_of(
        server.url,
        key=key,
        region=REGION,
        signature_version="s3v4",
        request_checksum_calculation="when_required",
    ) as client:
        yield client


def _raw_save(server: MinioServer, size_bytes: int) -> Client:
    """curl: the parts of a multipart upload, which is not completed."""

    def run() -> Answer:
        upload = {"Bucket": checkpoints.BUCKET, "Key": "raw"}
        with _presigner(server) as client:
            upload["UploadId"] = client.create_multipart_upload(**upload)["UploadId"]
            urls = [
                client.generate_presigned_url("upload_part", {**upload, "PartNumber": number})
                for number in range(1, -(-size_bytes // curl.PART_BYTES) + 1)
            ]
            try:
                return curl.put(urls, method="PUT")
            finally:
                client.abort_multipart_upload(**upload)

    return run


def _raw_load(server: MinioServer, size_bytes: int) -> Client:
    """curl: ranges of the plain checkpoint."""

    def run() -> Answer:
        named = {"Bucket": checkpoints.BUCKET, "Key": "headrace"}
        with _presigner(server) as client:
            url = client.generate_presigned_url("get_object", named)
        return curl.get(url, size_bytes=size_bytes)

    return run


def names(bench: Bench) -> None:
    """A large bucket of every shape, from a server that answers each page late."""
    count = bench.effort.listed_objects
    with FaultServer(dialect="s3", threads=2) as fault_server:
        server = listing.Server(bench, fault_server, **S3)
        for shape in listing.SHAPES:
            group = f"s3://, {count:,} names, {shape}, {listing.PAGE_DELAY_S * 1e3:.0f} ms a page"
            bucket = server.bucket(shape, count)
            answers = bench.alternate(
                group,
                {"Store.index()": server.client("list-index", bucket, count)},
                bench.effort.peer_repetitions,
            )
            listing.index_rows(bench, group, answers["Store.index()"], count, at_most_s=3)
        # A minute: once.
        group = f"s3://, {count:,} names, flat, {listing.PAGE_DELAY_S * 1e3:.0f} ms a page"
        bucket = server.bucket("flat", count)
        answers = bench.alternate(group, {"boto3": server.client("list-boto3", bucket, count)}, 1)
        bench.row(
            group, "boto3, page after page", "s", [each["wall_s"] for each in answers["boto3"]]
        )


GROUPS: dict[str, Callable[[Bench], None]] = {
    "s3": small,
    "s3-tls": tls,
    "s3-latency": latency,
    "s3-large": large,
    "s3-checkpoints": checkpoint,
    "s3-listing": names,
}
