"""Save and load a training state in a bucket, in three ways that read each other's files.

python examples/torch_save.py gs://bucket/run1
python examples/torch_save.py /tmp/run1
"""

from __future__ import annotations

import sys

import torch

import headrace


def main(url: str) -> None:
    """Save the same state twice and load it in three ways."""
    model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.Linear(512, 10))
    state = {"model": model.state_dict(), "step": 100}

    # torch's own functions, on a stream that uploads while torch serialises. If anything fails
    # before the end of the block, nothing becomes visible.
    with headrace.open(f"{url}/by_torch.pt", "wb") as file:
        torch.save(state, file)

    # The same file without a detour: the tensors' own memory goes to the store.
    saved = headrace.checkpoint.save(state, f"{url}/by_headrace.pt")
    print(f"saved {saved.size_bytes:,} bytes, generation {saved.generation}")

    with headrace.open(f"{url}/by_headrace.pt", "rb") as file:
        one = torch.load(file, weights_only=True)
    two = headrace.checkpoint.load(f"{url}/by_torch.pt")
    three = headrace.checkpoint.load(f"{url}/by_headrace.pt")  # every byte is verified
    for loaded in (one, two, three):
        model.load_state_dict(loaded["model"])
        assert loaded["step"] == 100
        assert all(torch.equal(loaded["model"][k], v) for k, v in state["model"].items())

    # A save that would replace a checkpoint can be refused.
    try:
        headrace.checkpoint.save(state, f"{url}/by_headrace.pt", if_generation="absent")
    except headrace.PreconditionFailedError:
        print("the old checkpoint is still there")
    print("newest:", headrace.checkpoint.latest(f"{url}/"))


if __name__ == "__main__":
    main(sys.argv[1])
