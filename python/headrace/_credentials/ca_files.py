"""Which certificates servers are judged by."""

from __future__ import annotations

import os

__all__ = ["ca_file"]

# Where the engine looks for certificates when nobody tells it; if none is there, certifi's serve.
_OF_SYSTEMS = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


def ca_file(from_environment: str) -> str:
    """Return the file of certificates that the engine is told of; ``""``: it finds the system's.

    Args:
        from_environment: what SSL_CERT_FILE says.
    """
    if from_environment or any(map(os.path.exists, _OF_SYSTEMS)):
        return from_environment
    try:
        import certifi
    except ImportError:
        return ""
    return certifi.where()
