"""Objects that checkpoints hold, how two of them are compared, and how they are written."""

from __future__ import annotations

import collections
import io
import itertools
import warnings
from typing import Any

import torch

import headrace
from headrace.checkpoint._tensor_file import CheckpointFile
from testing.faultserver.client import FaultServer

DTYPES = [
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16),
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool),
    *(torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2),
    *(torch.uint16, torch.uint32, torch.uint64),
]


def filled(dtype: torch.dtype, *shape: int, seed: int = 0) -> torch.Tensor:
    """A tensor of any bits (0 and 1 where they are bool)."""
    generator = torch.Generator().manual_seed(seed)
    if dtype is torch.bool:
        return torch.randint(0, 2, shape, dtype=torch.uint8, generator=generator).bool()
    count = torch.Size(shape).numel() * dtype.itemsize
    data = torch.randint(0, 256, (count,), dtype=torch.uint8, generator=generator)
    return data.view(dtype).reshape(shape)


def bits(tensor: torch.Tensor) -> bytes:
    """The values of a strided tensor, as they lie in memory: not a number equals itself."""
    plain = torch.empty(tensor.numel(), dtype=tensor.dtype)
    plain.copy_(tensor.detach().reshape(-1))
    return plain.view(torch.uint8).numpy().tobytes()


def assert_same(found: Any, expected: Any) -> None:
    """Compare two objects, and which of their tensors share memory."""
    pairs: list[tuple[torch.Tensor, torch.Tensor]] = []
    _compare(found, expected, pairs, "")
    for (a, b), (c, d) in itertools.pairwise(pairs):
        shared = b.untyped_storage().data_ptr() == d.untyped_storage().data_ptr()
        if b.numel() and d.numel():
            assert shared == (a.untyped_storage().data_ptr() == c.untyped_storage().data_ptr())


def _compare(found: Any, expected: Any, pairs: list[Any], place: str) -> None:
    assert type(found) is type(expected), place
    if isinstance(expected, torch.Tensor):
        assert found.dtype == expected.dtype, place
        assert found.shape == expected.shape, place
        assert found.layout == expected.layout, place
        assert found.device == expected.device, place
        assert found.requires_grad == expected.requires_grad, place
        if expected.device.type == "meta":
            return
        if expected.layout is not torch.strided:
            _compare(found.to_dense(), expected.to_dense(), [], place)
        elif expected.is_quantized:
            assert torch.equal(found.int_repr(), expected.int_repr()), place
            assert torch.equal(found.dequantize(), expected.dequantize()), place
        else:
            assert found.stride() == expected.stride(), place
            assert found.is_conj() == expected.is_conj(), place
            assert bits(found) == bits(expected), place
            pairs.append((found, expected))
    elif isinstance(expected, dict):
        assert list(found) == list(expected), place
        for key, value in expected.items():
            _compare(found[key], value, pairs, f"{place}.{key}")
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected), place
        for i, value in enumerate(expected):
            _compare(found[i], value, pairs, f"{place}.{i}")
    else:
        assert found == expected, place


def special_states() -> dict[str, Any]:
    """One object for each thing that torch.save has a way of its own for, by name."""
    base = torch.arange(100, dtype=torch.float64)
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.Adam(module.parameters())
    module(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    return {
        "empty dict": {},
        "no tensor": {"step": 3, "loss": 0.5, "name": "x", "none": None, "big": 1 << 70},
        "every dtype": {str(dtype): filled(dtype, 3, 5) for dtype in DTYPES},
        "views": [base, base[3:7], base.view(10, 10).t(), base[::3], base[5]],
        "expanded": torch.ones(1, 3).expand(4, 3),
        "channels last": torch.rand(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
        "zero sizes": [torch.zeros(0), torch.zeros(3, 0, 2, dtype=torch.int16), torch.zeros(0)],
        "parameter": torch.nn.Parameter(torch.ones(2, 2)),
        "frozen parameter": torch.nn.Parameter(torch.ones(2), requires_grad=False),
        "requires grad": torch.ones(3, requires_grad=True),
        "buffer": torch.nn.Buffer(torch.ones(3)),
        "conjugate": torch.tensor([1 + 2j, 3 - 4j]).conj(),
        "negative": torch.tensor([1 + 2j]).conj().imag,
        "meta": [torch.empty(3, 4, device="meta"), torch.ones(2)],
        "sparse": torch.eye(4).to_sparse(),
        "compressed sparse": torch.eye(4).to_sparse_csr(),
        "quantized": torch.quantize_per_tensor(torch.rand(3, 4), 0.1, 2, torch.qint8),
        "quantized by channel": torch.quantize_per_channel(
            torch.rand(3, 4),
            torch.tensor([0.1, 0.2, 0.3]),
            torch.tensor([0, 1, 2]),
            0,
            torch.quint8,
        ),
        "state_dict": module.state_dict(),
        "optimizer": optimizer.state_dict(),
        "ordered": collections.OrderedDict(b=torch.ones(1), a=(torch.zeros(2), [1, {2: "x"}])),
        "same twice": [base, base],
        "size": {
            "shape": torch.Size([2, 3]),
            "dtype": torch.float16,
            "device": torch.device("cpu"),
        },
    }


def file_of(obj: Any, **options: Any) -> bytes:
    """What `headrace.checkpoint.save` writes."""
    return b"".join(piece.data for piece in CheckpointFile(obj, **options).pieces())


def stock_file_of(obj: Any, **options: Any) -> bytes:
    """What `torch.save` writes."""
    file = io.BytesIO()
    torch.save(obj, file, **options)
    return file.getvalue()


def stock_load(data: bytes, **options: Any) -> Any:
    """What `torch.load` reads."""
    with quiet():
        return torch.load(io.BytesIO(data), **options)


def quiet() -> warnings.catch_warnings:  # type: ignore[type-arg]
    """torch warns of what it does with sparse and quantized tensors."""
    return warnings.catch_warnings(action="ignore", category=UserWarning)


def large_state(count: int = 10, tensor_bytes: int = 4 << 20) -> dict[str, torch.Tensor]:
    """So many tensors of that size."""
    return {f"layer.{i}": filled(torch.float32, tensor_bytes // 4, seed=i) for i in range(count)}


def kinds(server: FaultServer) -> dict[str, int]:
    """How many requests there were of each kind."""
    return dict(collections.Counter(each["kind"] for each in server.log()))


def sent_bytes(server: FaultServer) -> int:
    """The bytes of all bodies that the server sent."""
    return sum(each["bytes_sent"] for each in server.log() if each["kind"] == "media")


def load(store: headrace.Store, name: str = "a.pt", **options: Any) -> Any:
    """`headrace.checkpoint.load`, without torch's warnings."""
    import headrace.checkpoint

    with quiet():
        return headrace.checkpoint.load(name, store=store, **options)
