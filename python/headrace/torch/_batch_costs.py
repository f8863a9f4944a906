"""What samples cost: their bytes, a column, an array, or a function of their numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from headrace._base.errors import InvalidArgumentError
from headrace._base.options import require
from headrace.torch._batch_steps import BatchLimits
from headrace.torch._error_notes import about_call

if TYPE_CHECKING:
    from headrace.torch._source import Source

__all__ = ["Cost", "Costs", "numbers_of"]

Cost = str | Sequence[float] | torch.Tensor | Callable[[int], float]

_CHECKED = 1 << 20  # how many samples are checked together


class Costs:
    """What each sample takes of the limits of its batch.

    Args:
        source: the samples; None: only their number is known.
        count: how many samples there are.
        cost: see `CostBatchSampler`.
        limits: those that the costs are for.
        refuse_oversized: raise an error if a sample exceeds a limit alone.
    """

    def __init__(
        self,
        source: Source | None,
        count: int,
        cost: Cost | None,
        limits: BatchLimits,
        refuse_oversized: bool,
    ) -> None:
        self._source = source
        self._count = count
        self._limits = limits
        self._refuse_oversized = refuse_oversized
        self._needs_bytes = limits.max_bytes is not None
        self._function: Callable[[int], float] | None = None
        # Looked up by NumPy, because torch would use threads for a few thousand numbers.
        self._costs: Any = None
        if self._needs_bytes:
            if source is None:
                raise InvalidArgumentError(
                    "max_batch_bytes needs the sizes of the samples: give the dataset or its index "
                    "as data, or give the sizes as cost and max_batch_cost"
                )
            source.require_sizes("max_batch_bytes")
        if cost is None:
            return
        if callable(cost) and not isinstance(cost, torch.Tensor):
            self._function = cost
            # What it has returned, or NaN.
            self._costs = torch.full((count,), math.nan, dtype=torch.float64, device="cpu").numpy()
        else:
            costs = numbers_of("cost", cost, source, count)
            bad = ~torch.isfinite(costs) | (costs < 0)
            if bool(bad.any()):
                at = int(bad.nonzero()[0])
                raise self._no_cost(at, float(costs[at]))
            self._costs = costs.numpy()

    def check(self) -> None:
        """Look for a limit that no sample keeps to, and, if that is refused, for oversized samples.

        What a function returns is not known yet.
        """
        fits = self._function is not None or not self._has_limit
        for begin in range(0, self._count, _CHECKED):
            if fits and (not self._refuse_oversized or self._function is not None):
                return
            indices = torch.arange(begin, min(begin + _CHECKED, self._count), device="cpu").numpy()
            costs, sizes = self._looked_up(indices)
            fits = fits or not bool(self._is_oversized(costs, sizes).all())
            if self._refuse_oversized:
                self._refuse(indices, costs, sizes)
        require(
            fits,
            f"{self._told_limits()}: each of the {self._count} samples exceeds that alone",
        )

    def __call__(self, indices: memoryview) -> tuple[Any, Any]:
        """Return costs and bytes as buffers of doubles, None for what no limit needs.

        Raises:
            InvalidArgumentError: a cost is no finite number of at least 0, or a sample exceeds a
                limit alone, and that is refused.
        """
        numbers = torch.frombuffer(indices, dtype=torch.int64).numpy()
        if self._function is not None:
            self._ask(numbers)
        costs, sizes = self._looked_up(numbers)
        if self._refuse_oversized:
            self._refuse(numbers, costs, sizes)
        return costs, sizes

    def named(self, index: int) -> str:
        """Return what a message calls a sample."""
        if self._source is None:
            return f"sample {index}"
        return f"sample {index} ({self._source.url(index)})"

    @property
    def _has_limit(self) -> bool:
        return self._limits.max_cost is not None or self._limits.max_bytes is not None

    def _told_limits(self) -> str:
        limits = {
            "max_batch_cost": self._limits.max_cost,
            "max_batch_bytes": self._limits.max_bytes,
        }
        return " and ".join(f"{name}={most:g}" for name, most in limits.items() if most is not None)

    def _looked_up(self, numbers: Any) -> tuple[Any, Any]:
        """Return the costs and the bytes of these samples as arrays."""
        costs = None if self._costs is None else self._costs[numbers]
        if not self._needs_bytes:
            return costs, None
        assert self._source is not None
        sizes: Any = self._source.sizes(memoryview(numbers))
        return costs, torch.frombuffer(sizes, dtype=torch.int64).numpy().astype("float64")

    def _is_oversized(self, costs: Any, sizes: Any) -> Any:
        over: Any = torch.zeros(1, dtype=torch.bool, device="cpu").numpy()
        if costs is not None and self._limits.max_cost is not None:
            over = costs > self._limits.max_cost
        if sizes is not None and self._limits.max_bytes is not None:
            over = over | (sizes > self._limits.max_bytes)
        return over

    def _refuse(self, numbers: Any, costs: Any, sizes: Any) -> None:
        over = self._is_oversized(costs, sizes)
        if not bool(over.any()):
            return
        at = int(over.argmax())
        takes = []
        if costs is not None:
            takes.append(f"costs {float(costs[at]):g}")
        if sizes is not None:
            takes.append(f"has {int(sizes[at])} bytes")
        raise InvalidArgumentError(
            f"{self.named(int(numbers[at]))} {' and '.join(takes)}: it exceeds "
            f"{self._told_limits()} alone. oversized='alone' makes a batch of its own of such a "
            "sample, and 'skip' leaves it out"
        )

    def _ask(self, numbers: Any) -> None:
        """Call the function for samples whose cost is not known yet."""
        assert self._costs is not None
        assert self._function is not None
        found = self._costs[numbers]
        for index in numbers[found != found].tolist():  # NaN: not asked for yet
            try:
                answer = self._function(index)
            except Exception as error:
                told = about_call(error, f"cost, asked about {self.named(index)}")
                if told is error:
                    raise
                raise told from error
            try:
                cost = float(answer)
            except (TypeError, ValueError, OverflowError):
                cost = math.nan
            if not (math.isfinite(cost) and cost >= 0):
                raise self._no_cost(index, answer)
            self._costs[index] = cost

    def _no_cost(self, index: int, found: object) -> InvalidArgumentError:
        return InvalidArgumentError(
            f"the cost of {self.named(index)} is {found!r}; it must be a finite number of at least "
            "0"
        )


def numbers_of(name: str, values: Any, source: Source | None, count: int) -> torch.Tensor:
    """Return a number for each sample: those of a column, or those given.

    Raises:
        InvalidArgumentError: there is no such column, or not one number for each sample.
    """
    if isinstance(values, str):
        if source is None:
            raise InvalidArgumentError(
                f"{name} is the column {values!r}, but data is only a number of samples: give the "
                "dataset or its index as data"
            )
        return source.column(name, values)
    try:
        if isinstance(values, torch.Tensor) or hasattr(values, "__array__"):
            numbers = torch.as_tensor(values, device="cpu")
        else:
            numbers = torch.tensor(
                [float(value) for value in values], dtype=torch.float64, device="cpu"
            )
        numbers = numbers.detach().to("cpu", torch.float64).contiguous()
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise InvalidArgumentError(
            f"{name} is a {type(values).__name__}; it must be numbers, one for each sample, or the "
            f"name of a column ({error})"
        ) from error
    require(
        numbers.shape == (count,),
        f"{name} has the shape {tuple(numbers.shape)}, and there are {count} samples: give one "
        "number for each",
    )
    return numbers
