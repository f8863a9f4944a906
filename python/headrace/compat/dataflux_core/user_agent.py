"""``dataflux_core.user_agent``: what a client calls itself in requests."""

from __future__ import annotations

from typing import Any

__all__ = ["add_dataflux_user_agent", "user_agent_string"]

user_agent_string = "dataflux/1.0"


def add_dataflux_user_agent(storage_client: Any) -> None:
    """Put `user_agent_string` in front of what `storage_client` calls itself, once.

    The engine's own requests say ``headrace/<version>``; a client without Google's connection
    object is left as it is.
    """
    info = getattr(getattr(storage_client, "_connection", None), "_client_info", None)
    if info is None:
        return
    own = info.user_agent or ""
    if user_agent_string not in own:
        info.user_agent = f"{user_agent_string} {own}".strip()
