"""Clients of S3 that are not ours: each reads whole objects as its documentation says is fast.

Requests are signed, as ours are. None of these clients compares here what it reads with a checksum;
none asks for one.
"""

from __future__ import annotations

import os
from typing import Any

from bench.clients.measure import Answer, objects_of
from bench.clients.peers import fsspec_many, read_by_batches, read_by_threads


def use_keys(request: Answer) -> None:
    """Name keys and endpoint where AWS's own tools look for them, and hide the user's."""
    os.environ.update(
        AWS_ACCESS_KEY_ID=request["access_key"],
        AWS_SECRET_ACCESS_KEY=request["secret_key"],
        AWS_REGION=request["region"],
        AWS_ENDPOINT_URL=request["endpoint"],
        AWS_CONFIG_FILE="/nonexistent",
        AWS_SHARED_CREDENTIALS_FILE="/nonexistent",
        AWS_EC2_METADATA_DISABLED="true",
    )


def boto3_client(request: Answer, connection_count: int) -> Any:
    """boto3's client, whose pool would hold ten connections."""
    import boto3
    from botocore.config import Config

    use_keys(request)
    config = Config(
        region_name=request["region"],
        max_pool_connections=connection_count,
        # It asks for checksums otherwise, and then leaves those aside that it cannot compute.
        response_checksum_validation="when_required",
        s3={"addressing_style": "path"},
    )
    return boto3.client("s3", endpoint_url=request["endpoint"], config=config)


def boto3_many(request: Answer) -> Answer:
    """boto3: threads that share a client, each reading whole objects."""
    client, bucket = boto3_client(request, request["concurrency"]), request["bucket"]

    def read_one(name: str) -> bytes:
        body: bytes = client.get_object(Bucket=bucket, Key=name)["Body"].read()
        return body

    return read_by_threads(read_one, request)


def s3torchconnector_dataset(request: Answer) -> Any:
    """The bucket's objects as an S3MapDataset, whose items are whole bodies."""
    use_keys(request)
    from s3torchconnector import S3ClientConfig, S3MapDataset

    names, _ = objects_of(request)
    return S3MapDataset.from_objects(
        [f"s3://{request['bucket']}/{name}" for name in names],
        region=request["region"],
        endpoint=request["endpoint"],
        transform=lambda reader: reader.read(),
        s3client_config=S3ClientConfig(force_path_style=True),
    )


def s3torchconnector_many(request: Answer) -> Answer:
    """s3torchconnector: threads that share an S3MapDataset.

    Its documentation reads by the workers of a DataLoader, which would add what it costs to hand
    objects from process to process.
    """
    dataset = s3torchconnector_dataset(request)
    names, _ = objects_of(request)
    index_of = {name: index for index, name in enumerate(names)}

    def read_one(name: str) -> bytes:
        body: bytes = dataset[index_of[name]]
        return body

    return read_by_threads(read_one, request)


def s3fs_many(request: Answer) -> Answer:
    """s3fs: `cat` of a batch of names, all of the batch at once."""
    use_keys(request)
    import s3fs

    filesystem = s3fs.S3FileSystem(
        endpoint_url=request["endpoint"],
        client_kwargs={"region_name": request["region"]},
        # Of parts of one object: with more it asks for the size of each object first.
        max_concurrency=1,
        config_kwargs={
            # Its pool would hold ten.
            "max_pool_connections": request["concurrency"],
            "response_checksum_validation": "when_required",
            "s3": {"addressing_style": "path"},
        },
    )
    return fsspec_many(filesystem, request)


def s3dlio_many(request: Answer) -> Answer:
    """s3dlio: `get_many` of sixteen times as many objects as it reads at once."""
    use_keys(request)
    # Else it asks for the size of each object first, to read large ones by ranges.
    os.environ["S3DLIO_ENABLE_RANGE_OPTIMIZATION"] = "0"
    import s3dlio

    at_once = request["concurrency"]
    names, _ = objects_of(request)
    uris = [f"s3://{request['bucket']}/{name}" for name in names]

    def read_all(batch: list[str]) -> list[memoryview]:
        # In the order in which they came.
        bodies = dict(s3dlio.get_many(batch, max_in_flight=at_once))
        return [memoryview(bodies[uri]) for uri in batch]

    return read_by_batches(read_all, uris, {**request, "concurrency": 16 * at_once})
