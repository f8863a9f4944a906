"""Data-parallel training that survives the loss of a node and goes on with the ranks left.

On each of up to two nodes:

torchrun --nnodes=1:2 --nproc-per-node=1 --max-restarts=3 --rdzv-backend=c10d \\
    --rdzv-endpoint=HOST:29400 examples/elastic_training.py gs://bucket/digits/

If a node is lost or another one comes, torchrun starts the script again on all that are there. (At
HOST they meet: it must not be the one that is lost.) The script then resumes from the newest
checkpoint: the place of the loader belongs to no number of ranks, and the global batch stays the
same, so the steps are those of an undisturbed run. Only the steps after that checkpoint are done
again.
"""

from __future__ import annotations

import argparse
import json
import os
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import headrace
from headrace.demo.digits import decode, png_objects, write
from headrace.torch import Loader, MapDataset, shared_index

GLOBAL_BATCH = 64
STEPS_PER_CHECKPOINT = 5
SEED = 7


def fill(store: headrace.Store) -> None:
    """Write the images, unless an earlier run did."""
    if not store.exists("complete"):
        list(write(store, "", png_objects()))
        store.write("complete", b"")


def newest_below(url: str) -> str | None:
    """Return the newest complete checkpoint, the same on every rank."""
    found = [headrace.checkpoint.latest(url) if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(found)
    return found[0]


def tell(trace: str | None, **what: Any) -> None:
    """Append a line of JSON to a file, for those who want to follow the run."""
    if trace is not None:
        with open(f"{trace}.{os.getpid()}", "a") as file:
            file.write(json.dumps(what) + "\n")


def main() -> None:
    """Train to the last step, from the newest checkpoint if there is one."""
    parser = argparse.ArgumentParser(description="Train on digits with any number of ranks.")
    parser.add_argument("url", help="a folder or a prefix in a bucket, with / at its end")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--trace", help="a local file that each process extends by its own number")
    arguments = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    store = headrace.Store(arguments.url)
    if rank == 0:
        fill(store)
    index = shared_index(f"{store.url}/train/")  # the first rank lists, once it has filled

    torch.manual_seed(SEED)
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    model = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    dataset = MapDataset(f"{store.url}/train/", decode, index=index)
    loader = Loader(
        dataset, GLOBAL_BATCH // world_size, shuffle=True, seed=SEED, drop_last=True
    )  # each rank takes its share of the same global batch
    step = 0

    newest = newest_below(f"{store.url}/checkpoints/")
    if newest is not None:
        state = headrace.checkpoint.load(newest)
        network.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        loader.load_state_dict(state["loader"])
        step = state["step"]
    print(f"rank {rank} of {world_size} goes on after step {step}", flush=True)

    while loader.epoch < arguments.epochs:
        epoch = loader.epoch
        for images, labels, urls in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            step += 1
            dist.all_reduce(loss)
            tell(
                arguments.trace,
                rank=rank,
                world_size=world_size,
                epoch=epoch,
                step=step,
                loss=loss.item() / world_size,
                urls=urls,
            )
            if step % STEPS_PER_CHECKPOINT == 0:
                if rank == 0:
                    state = {
                        "model": network.state_dict(),
                        "optimizer": optimizer.state_dict(),
                        "loader": loader.state_dict(),
                        "step": step,
                    }
                    headrace.checkpoint.save(state, f"{store.url}/checkpoints/step{step:05d}.pt")
                dist.barrier()
    print(f"rank {rank} of {world_size} is done after step {step}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
