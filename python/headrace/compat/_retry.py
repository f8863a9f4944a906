"""Retry policies as users of google-cloud-storage write them.

In the original packages, the constants are objects of google-api-core. Importing that package takes
as long as reading hundreds of objects, and it need not be installed, so these are small objects
with the same interface. Arguments may be Google's own policies.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from headrace import InvalidArgumentError, RetryOptions, TimeoutOptions

__all__ = ["DATASET_RETRY", "LIBRARY_RETRY", "Retry", "engine_options"]

# For limits that Google's policies lack: they end by time alone.
_WITHOUT_END = (1 << 31) - 1
_TEN_YEARS_S = 10 * 365 * 86400.0
_SHORTEST_WAIT_S = 0.001


class Retry:
    """A stand-in for ``google.api_core.retry.Retry``: the same settings, the same ``with_...``.

    As a decorator, it delegates to Google's class, which must then be installed.

    Args:
        initial: seconds before the first retry, at most.
        maximum: seconds between two attempts, at most.
        multiplier: the factor by which the wait grows.
        timeout: seconds for all attempts together; None: no limit.
    """

    def __init__(
        self,
        *,
        initial: float = 1.0,
        maximum: float = 60.0,
        multiplier: float = 2.0,
        timeout: float | None = 120.0,
        predicate: Callable[[Exception], bool] | None = None,
        is_default: bool = False,
    ) -> None:
        # The names by which Google's own code, and others, look into a policy.
        self._initial = initial
        self._maximum = maximum
        self._multiplier = multiplier
        self._timeout = self._deadline = timeout
        self._predicate = predicate
        self.is_default = is_default
        """Whether this is a default that nobody chose; the engine's own policy is then better."""

    @property
    def timeout(self) -> float | None:
        return self._timeout

    deadline = timeout

    def with_timeout(self, timeout: float | None) -> Retry:
        """Return the same policy with another time for all attempts together."""
        return self._with(timeout=timeout)

    with_deadline = with_timeout

    def with_delay(
        self,
        initial: float | None = None,
        maximum: float | None = None,
        multiplier: float | None = None,
    ) -> Retry:
        """Return the same policy with other waits; None keeps a value."""
        return self._with(
            initial=self._initial if initial is None else initial,
            maximum=self._maximum if maximum is None else maximum,
            multiplier=self._multiplier if multiplier is None else multiplier,
        )

    def with_predicate(self, predicate: Callable[[Exception], bool]) -> Retry:
        """Return the same policy with another choice of errors that are retried."""
        return self._with(predicate=predicate)

    def __call__(
        self, func: Callable[..., Any], on_error: Callable[[Exception], Any] | None = None
    ) -> Callable[..., Any]:
        google: Any = importlib.import_module("google.cloud.storage.retry").DEFAULT_RETRY
        google = google.with_timeout(self._timeout).with_delay(
            self._initial, self._maximum, self._multiplier
        )
        if self._predicate is not None:
            google = google.with_predicate(self._predicate)
        decorated: Callable[..., Any] = google(func, on_error)
        return decorated

    def __repr__(self) -> str:
        return (
            f"<Retry initial={self._initial}, maximum={self._maximum}, "
            f"multiplier={self._multiplier}, timeout={self._timeout}>"
        )

    def _with(self, **changed: Any) -> Retry:
        settings = {
            "initial": self._initial,
            "maximum": self._maximum,
            "multiplier": self._multiplier,
            "timeout": self._timeout,
            "predicate": self._predicate,
        }
        return Retry(**{**settings, **changed})


DATASET_RETRY = Retry(initial=1.0, maximum=30.0, multiplier=1.5, timeout=100_000.0, is_default=True)
LIBRARY_RETRY = Retry(initial=1.0, maximum=45.0, multiplier=1.2, timeout=300.0, is_default=True)


def engine_options(policy: Any) -> tuple[RetryOptions, TimeoutOptions]:
    """Return the engine's options for a `Retry` of headrace or of google-api-core; None: no retry.

    The policy sets the waits and the time for all attempts. The engine decides which errors are
    retried: `docs/reference/errors.md` has the table.
    """
    if policy is None:
        return RetryOptions(max_attempts=1), TimeoutOptions()
    # google-cloud-storage wraps policies for writes with a precondition.
    policy = getattr(policy, "retry_policy", policy)
    if not hasattr(policy, "_initial"):
        raise InvalidArgumentError(
            f"the retry policy is {policy!r}; it must be a google.api_core.retry.Retry, or None"
        )
    if getattr(policy, "is_default", False):
        return RetryOptions(), TimeoutOptions()
    timeout_s = getattr(policy, "_timeout", getattr(policy, "_deadline", None))
    if timeout_s is not None and timeout_s <= 0:
        return RetryOptions(max_attempts=1), TimeoutOptions()
    return (
        RetryOptions(
            max_attempts=_WITHOUT_END,
            # Google's values may be 0; the engine draws each wait from [0, value].
            initial_backoff_s=max(policy._initial, _SHORTEST_WAIT_S),
            max_backoff_s=max(policy._maximum, _SHORTEST_WAIT_S),
            backoff_multiplier=max(policy._multiplier, 1.0),
            budget_tokens=_WITHOUT_END,
        ),
        TimeoutOptions(total_s=_TEN_YEARS_S if timeout_s is None else min(timeout_s, _TEN_YEARS_S)),
    )
