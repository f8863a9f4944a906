"""A model sharded by FSDP2 that saves in the background, and goes on with any number of ranks.

torchrun --nproc-per-node 4 examples/fsdp2_checkpoint.py gs://bucket/run1/
torchrun --nproc-per-node 2 examples/fsdp2_checkpoint.py gs://bucket/run1/
"""

from __future__ import annotations

import sys
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from headrace.checkpoint import DistributedReader, DistributedWriter, latest

STEPS = 3


def sharded_model() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """A network whose parameters are spread over all ranks, and its optimizer."""
    torch.manual_seed(7)  # the same start on every rank
    model = torch.nn.Sequential(
        torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64), torch.nn.Linear(64, 3)
    )
    device = "cuda" if torch.cuda.is_available() else "cpu"
    mesh = init_device_mesh(device, (dist.get_world_size(),))
    for layer in model:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


def train_step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    """One step on data that follow from its number and the rank."""
    device = next(model.parameters()).device
    random = torch.Generator().manual_seed(1000 * step + dist.get_rank())
    inputs = torch.randn(16, 20, generator=random).to(device)
    loss = model(inputs).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def fingerprint(model: torch.nn.Module) -> float:
    """One number for all parameters of all ranks."""
    total = 0.0
    for parameter in model.parameters():
        whole = parameter.full_tensor() if isinstance(parameter, DTensor) else parameter
        total += float(whole.detach().double().abs().sum())
    return total


def state_of(model: torch.nn.Module, optimizer: torch.optim.Optimizer, step: int) -> dict[str, Any]:
    """Return all that a checkpoint has, as this rank holds it."""
    model_state, optimizer_state = get_state_dict(model, optimizer)
    return {"model": model_state, "optimizer": optimizer_state, "step": step}


def newest_below(url: str) -> str | None:
    """Return the newest complete checkpoint, the same on every rank."""
    found = [latest(url) if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(found)
    return found[0]


def main(url: str) -> None:
    """Go on from the newest checkpoint below `url`, if there is one, and save each step."""
    dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    saving_group = dist.new_group(backend="gloo")  # saves talk beside training
    model, optimizer = sharded_model()
    done = 0

    newest = newest_below(url)
    if newest is not None:
        state = state_of(model, optimizer, done)
        dcp.load(state, storage_reader=DistributedReader(newest))
        set_state_dict(
            model,
            optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )
        done = state["step"]
        print(f"rank {dist.get_rank()}: loaded step {done}, parameters {fingerprint(model):.9f}")

    saving = None
    for step in range(done + 1, done + STEPS + 1):
        train_step(model, optimizer, step)
        if saving is not None:
            saving.result()  # of the step before; raises if anything is not durable, on any rank
        # Returns when the state is copied to host memory; the upload goes on beside the next step.
        saving = dcp.async_save(
            state_of(model, optimizer, step),
            storage_writer=DistributedWriter(f"{url}step{step}"),
            process_group=saving_group,
        )
    if saving is not None:
        saving.result()
    print(f"rank {dist.get_rank()}: saved step {step}, parameters {fingerprint(model):.9f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1].rstrip("/") + "/")
