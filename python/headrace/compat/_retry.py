"""Retry policies as the users of google-cloud-storage write them.

The constants of the packages that we stand in for are objects of google-api-core. Importing that
takes as long as reading hundreds of objects, and it need not be installed; so ours are small ones
that read alike. Google's own are taken wherever a policy is an argument.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from headrace._errors import InvalidArgumentError
from headrace._options import RetryOptions, TimeoutOptions

__all__ = ["DATASET_RETRY", "LIBRARY_RETRY", "Retry", "engine_options"]

# What neither a user nor Google's library bounds: their policies end by time alone.
_WITHOUT_END = (1 << 31) - 1
_TEN_YEARS_S = 10 * 365 * 86400.0
_SHORTEST_WAIT_S = 0.001


class Retry:
    """A stand-in for ``google.api_core.retry.Retry``: the same settings, the same ``with_...``.

    Called with a function it does what Google's would, by Google's, which must be installed then.

    Args:
        initial: seconds before the first retry, at most.
        maximum: seconds between two attempts, at most.
        multiplier: by what the wait grows.
        timeout: seconds for all attempts together; None: no end.
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
        # By these names Google's own code, and others, look into a policy.
        self._initial = initial
        self._maximum = maximum
        self._multiplier = multiplier
        self._timeout = self._deadline = timeout
        self._predicate = predicate
        self.is_default = is_default
        """Nobody has chosen this policy: the engine's own serves better."""

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
        """Return the same policy with other waits; None keeps what is there."""
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
    """Return what the engine is told for a `Retry` of ours or of google-api-core; None: no retry.

    The waits and the time for all attempts are the policy's. Which errors are worth another
    attempt is the engine's decision: `docs/reference/errors.md` has the table.
    """
    if policy is None:
        return RetryOptions(max_attempts=1), TimeoutOptions()
    # One that holds for writes with a precondition, by google-cloud-storage.
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
            # Google's may be 0; the engine draws each wait from [0, that].
            initial_backoff_s=max(policy._initial, _SHORTEST_WAIT_S),
            max_backoff_s=max(policy._maximum, _SHORTEST_WAIT_S),
            backoff_multiplier=max(policy._multiplier, 1.0),
            budget_tokens=_WITHOUT_END,
        ),
        TimeoutOptions(total_s=_TEN_YEARS_S if timeout_s is None else min(timeout_s, _TEN_YEARS_S)),
    )
