"""One measurement in a process of its own: `python -m bench.client '{"client": ..., ...}'`.

The last line printed is a JSON object: objects, bytes, wall and CPU seconds, and what else the
client counts. bench/clients holds the clients; each is imported only where it is measured.
"""

from __future__ import annotations

import importlib
import json
import os
import sys

# Name of a client -> the module below bench/clients and the function there.
CLIENTS = {
    "headrace": ("engine", "read_batches"),
    "headrace-into": ("engine", "read_into"),
    "headrace-put": ("engine", "write_whole"),
    "headrace-memory": ("engine", "memory"),
    "headrace-idle": ("engine", "idle"),
    "obstore": ("peers", "obstore_many"),
    "obstore-into": ("peers", "obstore_into"),
    "obstore-put": ("peers", "obstore_put"),
    "google-cloud-storage": ("peers", "google_many"),
    "obstore-batches": ("peers", "obstore_batches"),
    "gcsfs": ("peers", "gcsfs_many"),
    "boto3": ("s3_peers", "boto3_many"),
    "s3torchconnector": ("s3_peers", "s3torchconnector_many"),
    "s3fs": ("s3_peers", "s3fs_many"),
    "s3dlio": ("s3_peers", "s3dlio_many"),
    "dataflux": ("dataflux", "read_batches"),
    "dataflux-epoch": ("dataflux", "epoch"),
    "dataflux-epochs": ("dataflux", "epochs"),
    "compat": ("dataflux", "compat_read_batches"),
    "compat-epoch": ("dataflux", "compat_epoch"),
    "compat-epochs": ("dataflux", "compat_epochs"),
    "aistore-epoch": ("aistore", "epoch"),
    "aistore-shards": ("aistore", "shards"),
    "aistore-sampler": ("aistore", "sampler"),
    "aistore-listing": ("aistore", "listing"),
    "aistore-requests": ("aistore", "requests_loop"),
    "compat-ais-epoch": ("aistore", "epoch"),
    "compat-ais-shards": ("aistore", "shards"),
    "compat-ais-sampler": ("aistore", "sampler"),
    "aistore-sampler-again": ("aistore", "sampler_again"),
    "compat-ais-sampler-again": ("aistore", "sampler_again"),
    "throttled": ("throttling", "read_batches"),
    "dlio-train": ("dlio", "train"),
    "dlio-checkpoint": ("dlio", "checkpoint"),
    "mlperf": ("mlperf", "headrace"),
    "mlperf-s3torchconnector": ("mlperf", "s3torchconnector"),
    "mlperf-s3dlio": ("mlperf", "s3dlio"),
    "recovery": ("recovery", "requests"),
    "upload": ("uploads", "upload"),
    "map": ("training", "map_batches"),
    "map-dataloader": ("training", "map_dataloader"),
    "iterable": ("training", "iterable"),
    "loader": ("training", "loader"),
    "loader-waits": ("training", "loader_waits"),
    "map-waits": ("training", "map_waits"),
    "rank": ("training", "rank"),
    "first-batch": ("first_batch", "first_batch"),
    "shards-loader": ("shards", "loader"),
    "shards-stream": ("shards", "stream"),
    "shards-webdataset": ("shards", "webdataset"),
    "pack": ("packing", "pack"),
    "files-own": ("files", "own"),
    "files-map": ("files", "map_batches"),
    "files-loader": ("files", "loader"),
    "files-workers": ("files", "workers"),
    "overlap": ("overlap", "overlap"),
    "verdict": ("verdicts", "verdict"),
    "device-steps": ("device", "steps"),
    "device-checkpoints": ("device", "checkpoints"),
    "ray-data": ("ray_data", "read"),
    "jpeg-loader": ("training", "jpeg_loader"),
    "jpeg-memory": ("training", "jpeg_memory"),
    "overhead": ("training", "overhead"),
    "checkpoint-save": ("checkpoints", "save"),
    "checkpoint-save-gcsfs": ("checkpoints", "save"),
    "checkpoint-save-s3fs": ("checkpoints", "save"),
    "checkpoint-save-dataflux": ("checkpoints", "save"),
    "checkpoint-load": ("checkpoints", "load"),
    "checkpoint-load-gcsfs": ("checkpoints", "load"),
    "checkpoint-load-s3fs": ("checkpoints", "load"),
    "checkpoint-load-dataflux": ("checkpoints", "load"),
    "checkpoint-save-s3torchconnector": ("checkpoints", "save"),
    "checkpoint-load-s3torchconnector": ("checkpoints", "load"),
    "checkpoint-dcp-save": ("checkpoints", "save_distributed"),
    "checkpoint-dcp-load": ("checkpoints", "load_distributed"),
    "checkpoint-dcp-save-s3torchconnector": ("checkpoints", "save_distributed"),
    "checkpoint-dcp-load-s3torchconnector": ("checkpoints", "load_distributed"),
    "orbax": ("orbax", "save_and_load"),
    "orbax-gcsfs": ("orbax", "save_and_load"),
    "orbax-dataflux": ("orbax", "save_and_load"),
    "safetensors-save": ("safetensors", "save"),
    "safetensors-load": ("safetensors", "load"),
    "safetensors-keep": ("safetensors", "keep"),
    "list-index": ("listing", "index"),
    "index-position": ("index", "position"),
    "orders": ("index", "orders"),
    "loader-resume": ("index", "resume"),
    "index-from-urls": ("index", "from_urls"),
    "batches-of-bytes": ("index", "batches_of_bytes"),
    "batches-of-costs": ("index", "batches_of_costs"),
    "weighted-draws": ("index", "weighted_draws"),
    "parquet-columns": ("parquet", "columns"),
    "parquet-raw": ("parquet", "raw"),
    "parquet-pyarrow": ("parquet", "pyarrow_fsspec"),
    "fsspec": ("fsspec", "ours"),
    "fsspec-gcsfs": ("fsspec", "gcsfs"),
    "fsspec-s3fs": ("fsspec", "s3fs"),
    "tokens-loader": ("tokens", "loader"),
    "tokens-in-turn": ("tokens", "in_turn"),
    "tokens-megatron": ("tokens", "megatron"),
    "tokens-memory-map": ("tokens", "memory_map"),
    "list-first": ("listing", "first_names"),
    "list-boto3": ("listing", "boto3_pages"),
    "list-google": ("listing", "google_pages"),
    "list-dataflux": ("listing", "dataflux"),
}


def main() -> None:
    request = json.loads(sys.argv[1])
    if "cores" in request:
        os.sched_setaffinity(0, request["cores"])
    module, function = CLIENTS[request["client"]]
    client = getattr(importlib.import_module(f"bench.clients.{module}"), function)
    print(json.dumps(client(request)), flush=True)
    if request["client"].startswith("obstore"):
        # It aborts now and then while the interpreter ends, after the answer; that is not measured.
        os._exit(0)


if __name__ == "__main__":
    main()
