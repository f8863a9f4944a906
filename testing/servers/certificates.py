"""Certificates for servers on loopback, signed by a CA that exists for one test run."""

from __future__ import annotations

from pathlib import Path

import trustme


class Certificates:
    """A CA and one server certificate, written into `folder`.

    ca_file:    what a client is told to trust
    cert_file:  the server's certificate (127.0.0.1, ::1, localhost, and `names`)
    key_file:   its private key
    """

    def __init__(self, folder: Path, *names: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.ca_file = folder / "ca.pem"
        self.cert_file = folder / "server.pem"
        self.key_file = folder / "server.key"
        authority = trustme.CA()
        server = authority.issue_cert("127.0.0.1", "::1", "localhost", *names)
        authority.cert_pem.write_to_path(str(self.ca_file))
        server.private_key_pem.write_to_path(str(self.key_file))
        for index, blob in enumerate(server.cert_chain_pems):
            blob.write_to_path(str(self.cert_file), append=index > 0)
