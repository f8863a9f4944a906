"""A copy of a training state in host memory, that training may go on beside."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["stage_to_host"]


def stage_to_host(state_dict: dict[str, Any]) -> dict[str, Any]:
    """Return the state with its tensors copied to host memory; pinned where there is CUDA.

    Copies from a device are started all together and awaited once.
    """
    # Not in every torch that we serve; where it is not, torch does the staging itself.
    from torch.distributed._state_dict_utils import _copy_state_dict, _create_cpu_state_dict

    from_device = torch.cuda.is_available()
    staged = _create_cpu_state_dict(state_dict, pin_memory=from_device)
    copied = _copy_state_dict(state_dict, staged, non_blocking=from_device, type_check=False)
    if from_device:
        torch.cuda.synchronize()
    return copied
