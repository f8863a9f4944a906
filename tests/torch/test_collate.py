"""`collate`: what it makes of large tensors, which torch would stack with threads of its own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import default_collate

from headrace.torch._collate import collate

LARGE = 64, 600
"""With eight of these, a batch has more numbers than torch copies in one thread."""


def same(found: torch.Tensor, expected: torch.Tensor) -> bool:
    return (
        found.dtype == expected.dtype
        and found.stride() == expected.stride()
        and torch.equal(found, expected)
    )


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.float16, torch.float32])
def test_large_tensors_are_stacked_in_this_thread(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype
) -> None:
    samples = [(torch.arange(i, i + 64 * 600).reshape(LARGE).to(dtype), i) for i in range(8)]
    images, numbers = default_collate(samples)

    def refused(*_: Any, **__: Any) -> None:
        raise AssertionError("torch stacks")

    monkeypatch.setattr(torch, "stack", refused)
    found = collate(samples)
    assert same(found[0], images)
    assert found[1].tolist() == numbers.tolist() == list(range(8))
    with pytest.raises(AssertionError, match="torch stacks"):
        collate([torch.zeros(10)] * 8)  # these are faster with torch


def transposed() -> torch.Tensor:
    return torch.rand(600, 64).T


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.rand(LARGE).bfloat16(),
        lambda: torch.rand(LARGE, requires_grad=True),
        lambda: torch.nn.Parameter(torch.rand(LARGE)),
        transposed,
        lambda: torch.rand(64, 200, 3).permute(2, 0, 1),
        lambda: torch.view_as_complex(torch.rand(64, 600, 2)).conj(),
    ],
)
def test_other_tensors_are_stacked_by_torch(make: Any) -> None:
    samples = [make() for _ in range(8)]
    found, expected = collate(samples), default_collate(samples)
    assert found.requires_grad == expected.requires_grad
    assert same(found, expected)


def test_a_function_of_the_users_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.utils.data._utils.collate import default_collate_fn_map

    def theirs(batch: list[torch.Tensor], **_: Any) -> str:
        return f"{len(batch)} tensors"

    monkeypatch.setitem(default_collate_fn_map, torch.Tensor, theirs)
    assert collate([torch.rand(LARGE)] * 8) == "8 tensors"
