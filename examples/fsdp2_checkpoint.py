"""A model sharded by FSDP2, saved by some ranks and loaded by any other number of them.

torchrun --nproc-per-node 4 examples/fsdp2_checkpoint.py save gs://bucket/run1/step3
torchrun --nproc-per-node 2 examples/fsdp2_checkpoint.py load gs://bucket/run1/step3
"""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from headrace.checkpoint import DistributedReader, DistributedWriter


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


def main(action: str, url: str) -> None:
    """Save after three steps, without waiting for the upload; or load, and go on training."""
    dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    model, optimizer = sharded_model()
    if action == "save":
        for step in range(3):
            train_step(model, optimizer, step)
        model_state, optimizer_state = get_state_dict(model, optimizer)
        state = {"model": model_state, "optimizer": optimizer_state, "step": 3}
        # The state is copied to host memory; then training could go on beside the upload.
        save = dcp.async_save(state, storage_writer=DistributedWriter(url))
        save.result()  # raises if anything is not durable, on any rank
    else:
        model_state, optimizer_state = get_state_dict(model, optimizer)
        state = {"model": model_state, "optimizer": optimizer_state, "step": 0}
        dcp.load(state, storage_reader=DistributedReader(url))
        set_state_dict(
            model,
            optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )
    print(f"rank {dist.get_rank()}: step {state['step']}, parameters {fingerprint(model):.9f}")
    if action == "load":
        train_step(model, optimizer, state["step"])
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
