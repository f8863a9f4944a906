"""The thread that makes credentials for the engine, whatever they are made from.

The engine asks through a queue and parks the requests that need a credential; however long a
look-up takes, other requests go on and each request still ends by its own deadline.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Protocol

from headrace import _engine
from headrace._base.errors import text_of

__all__ = ["CredentialsThread", "Source"]

_JOIN_TIMEOUT_S = 0.5


class Source(Protocol):
    """One identity: where its credentials come from. Only the credentials thread calls it."""

    def renew(self, engine_copy: _engine.Credentials) -> None:
        """Give the engine a credential that it has not had yet, or say why there is none.

        What it raises is the reason why there is none.
        """


class CredentialsThread:
    """Makes credentials. A daemon: a service that hangs does not hold up exit."""

    def __init__(self) -> None:
        self._queue = _engine.CredentialsQueue()
        self._lock = threading.Lock()
        self._identities: list[tuple[_engine.Credentials, Source]] = []
        self._ids: dict[Hashable, int] = {}
        self._thread: threading.Thread | None = None
        self._stopped = False

    def credentials_of(self, key: Hashable, source: Callable[[], Source]) -> _engine.Credentials:
        """Return what the engine needs for the identity `key`, whose `source` is made once."""
        with self._lock:
            if key not in self._ids:
                number = len(self._ids)
                self._identities.append(
                    (_engine.Credentials.from_queue(self._queue, number), source())
                )
                self._ids[key] = number
            if self._thread is None and not self._stopped:
                self._thread = threading.Thread(
                    target=self._serve, name="headrace-credentials", daemon=True
                )
                self._thread.start()
            return self._identities[self._ids[key]][0]

    def stop(self) -> bool:
        """Make no more credentials. Waits a moment, and returns whether the thread has ended by
        then: a service that hangs is not waited for."""
        with self._lock:
            self._stopped = True
            thread = self._thread
        self._queue.stop()
        if thread is None or thread is threading.current_thread():
            return True
        thread.join(_JOIN_TIMEOUT_S)
        return not thread.is_alive()

    def _serve(self) -> None:
        while not self._stopped:
            asking = self._queue.next(3600.0)
            if asking is not None:
                engine_copy, source = self._identities[asking.id]
                try:
                    source.renew(engine_copy)
                except BaseException as error:  # a source is the user's code, too
                    # Without an answer the requests would wait for their deadlines, and without
                    # this thread so would all that come.
                    engine_copy.fail(
                        f"the credentials failed: {type(error).__name__}: {text_of(error)}",
                        retryable=False,
                    )
