"""``dataflux_core.user_agent``: the name of a client in its requests."""

from __future__ import annotations

from typing import Any

__all__ = ["add_dataflux_user_agent", "user_agent_string"]

user_agent_string = "dataflux/1.0"


def add_dataflux_user_agent(storage_client: Any) -> None:
    """Put `user_agent_string` in front of the user agent of `storage_client`, once.

    The engine's own requests say ``headrace/<version>``. A client without Google's connection
    object is not changed.
    """
    info = getattr(getattr(storage_client, "_connection", None), "_client_info", None)
    if info is None:
        return
    own = info.user_agent or ""
    if user_agent_string not in own:
        info.user_agent = f"{user_agent_string} {own}".strip()
