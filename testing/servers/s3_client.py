"""A client of S3 that others wrote: botocore, as it signs, sums and reads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from botocore import UNSIGNED
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.loaders import Loader
from botocore.session import Session

KEY = {"access_key": "AKIDEXAMPLE", "secret_key": "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"}
REGION = "us-east-1"
# Reads the description of the service once, not once a client.
_LOADER = Loader()


@contextmanager
def client_of(
    url: str,
    *,
    key: dict[str, str] | None = KEY,
    region: str = REGION,
    ca_file: Path | None = None,
    **config: Any,
) -> Iterator[Any]:
    """A client of the server at `url`; nothing of the user's own configuration plays a part."""
    session = Session(session_vars={"config_file": (None, None, "/nonexistent", None)})
    session.register_component("data_loader", _LOADER)
    session.set_config_variable("credentials_file", "/nonexistent")
    if key is not None:
        session._credentials = Credentials(
            key["access_key"], key["secret_key"], key.get("session_token")
        )
    else:
        config["signature_version"] = UNSIGNED
    style = config.pop("style", "path")
    settings: dict[str, Any] = {
        "s3": {"addressing_style": style},
        "retries": {"total_max_attempts": 1},
        "proxies": {},
        **config,
    }
    client = session.create_client(
        "s3",
        region_name=region,
        endpoint_url=url,
        verify=None if ca_file is None else str(ca_file),
        config=Config(**settings),
    )
    try:
        yield client
    finally:
        client.close()
