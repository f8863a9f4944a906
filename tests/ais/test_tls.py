"""A cluster that speaks TLS: tokens, certificates of both sides, and none that are looked at."""

from __future__ import annotations

import json
import logging
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import trustme

import headrace
from testing.faultserver.client import FaultServer
from testing.servers import Certificates
from tests.ais.conftest import by_node, know_the_map
from tests.faults.conftest import FAST

PART = 1 << 16


@pytest.fixture
def tls_cluster(certificates: Certificates) -> Iterator[FaultServer]:
    """Three targets and a proxy that speak TLS and answer only those who have the token."""
    with FaultServer(
        dialect="ais", targets=3, tls_cert=certificates.cert_file, tls_key=certificates.key_file
    ) as server:
        server.bucket("bucket")
        server.auth(["first"])
        headrace.shutdown()
        yield server
        headrace.shutdown()


def open_store(server: FaultServer, **options: Any) -> headrace.Store:
    return headrace.Store("ais://bucket", endpoint=server.url, retry=FAST, **options)


@pytest.mark.parametrize("direct", [True, False], ids=["direct", "by-the-proxy"])
def test_everything_goes_by_tls_and_with_the_token(
    tls_cluster: FaultServer,
    certificates: Certificates,
    monkeypatch: pytest.MonkeyPatch,
    direct: bool,
) -> None:
    monkeypatch.setenv("AIS_CLIENT_CA", str(certificates.ca_file))
    monkeypatch.setenv("AIS_AUTHN_TOKEN", "first")
    store = open_store(tls_cluster, provider=headrace.AisOptions(direct=direct))
    names = [f"o{i:02}" for i in range(20)]
    for name in names:
        store.write(name, name.encode())
    with store.open_writer("large", part_bytes=PART, content_type="text/plain") as writer:
        writer.write(b"large" * PART)
    if direct:
        know_the_map(tls_cluster, store)
        store.delete("known")
    infos = list(store.list())
    assert [info.name for info in infos] == ["large", *names]
    by_the_proxy = by_node(tls_cluster, 0, "media")
    assert [sample.bytes() for sample in store.read_many(infos[1:])] == [n.encode() for n in names]
    assert store.read("large").bytes() == b"large" * PART
    assert (by_node(tls_cluster, 0, "media") == by_the_proxy) is direct
    assert store.stat("large").content_type == "text/plain"
    store.delete("large")
    assert not store.exists("large")
    assert [e for e in tls_cluster.log() if e["status"] == 401] == []


@pytest.mark.parametrize("direct", [True, False], ids=["direct", "by-the-proxy"])
def test_a_token_that_has_expired_is_renewed(
    tls_cluster: FaultServer,
    certificates: Certificates,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    direct: bool,
) -> None:
    monkeypatch.setenv("AIS_CLIENT_CA", str(certificates.ca_file))
    path = tmp_path / "token.json"
    monkeypatch.setenv("AIS_AUTHN_TOKEN_FILE", str(path))
    path.write_text(json.dumps({"token": "first"}))
    store = open_store(tls_cluster, provider=headrace.AisOptions(direct=direct))
    if direct:
        know_the_map(tls_cluster, store)
    store.write("o", b"first")
    assert store.read("o").bytes() == b"first"
    tls_cluster.cluster(tokens_have_expired=True)
    for token in ("second", "third"):
        path.write_text(json.dumps({"token": token}))
        tls_cluster.auth([token])
        store.write("o", token.encode())
        assert store.read("o").bytes() == token.encode()
        assert [info.name for info in store.list(prefix="o")] == ["o"]
    assert headrace.metrics().retries_total == 0


def test_a_token_that_is_not_accepted_is_told(
    tls_cluster: FaultServer, certificates: Certificates
) -> None:
    provider = headrace.AisOptions(ca_file=str(certificates.ca_file))
    store = open_store(
        tls_cluster, provider=provider, credentials=headrace.BearerToken("very-secret")
    )
    for call in (lambda: store.read("o"), lambda: store.write("o", b"x"), lambda: store.stat("o")):
        with pytest.raises(headrace.PermissionDeniedError, match="401") as caught:
            call()
        assert "very-secret" not in str(caught.value)


def test_without_verification_any_certificate_is_taken_and_a_warning_says_so(
    tls_cluster: FaultServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    token = headrace.BearerToken("first")
    with pytest.raises(headrace.PermissionDeniedError, match="certificate"):
        open_store(tls_cluster, credentials=token).stat("o")
    monkeypatch.setenv("AIS_SKIP_VERIFY_CRT", "true")
    store = open_store(tls_cluster, credentials=token)
    with caplog.at_level(logging.WARNING, logger="headrace"):
        know_the_map(tls_cluster, store)
        store.write("o", b"x")
        assert store.read("o").bytes() == b"x"
    said = [r.getMessage() for r in caplog.records if "not verified" in r.getMessage()]
    assert len(said) == 1
    assert tls_cluster.url in said[0]
    strict = open_store(
        tls_cluster, credentials=token, provider=headrace.AisOptions(skip_verify=False)
    )
    with pytest.raises(headrace.PermissionDeniedError, match="certificate"):
        strict.read("o")


# ── Certificates of clients ──────────────────────────────────────────────────────────────────


class KnownClients(BaseHTTPRequestHandler):
    """Answers all reads with the same object, and notes who asks."""

    protocol_version = "HTTP/1.1"
    seen: list[str]

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        certificate = self.connection.getpeercert()  # type: ignore[attr-defined]
        self.seen.append(certificate["subjectAltName"][0][1])
        self.send_response(200 if self.path.startswith("/v1/objects/") else 404)
        self.send_header("Content-Length", "5")
        self.send_header("Ais-Version", "1")
        self.send_header("Ais-Checksum-Type", "none")
        self.end_headers()
        self.wfile.write(b"hello")


class Server(ThreadingHTTPServer):
    def handle_error(self, *_: Any) -> None:
        """A client that is turned away is what the tests are about."""


@pytest.fixture
def mutual(tmp_path: Path) -> Iterator[tuple[str, list[str], dict[str, str]]]:
    """The URL of a server that wants certificates, who came, and files."""
    authority, stranger = trustme.CA(), trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    files = {"ca": str(tmp_path / "ca.pem")}
    for name, issuer in (("trainer", authority), ("stranger", stranger)):
        issued = issuer.issue_cert(f"{name}@example.test")
        files[name] = str(tmp_path / f"{name}.pem")
        files[f"{name}-key"] = str(tmp_path / f"{name}.key")
        issued.cert_chain_pems[0].write_to_path(files[name])
        issued.private_key_pem.write_to_path(files[f"{name}-key"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    handler = type("Handler", (KnownClients,), {"seen": []})
    with Server(("127.0.0.1", 0), handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        headrace.shutdown()
        try:
            yield f"https://127.0.0.1:{server.server_port}", handler.seen, files
        finally:
            headrace.shutdown()
            server.shutdown()
            thread.join()


def read_at(url: str, provider: headrace.AisOptions) -> bytes:
    return (
        headrace.Store("ais://bucket", endpoint=url, retry=FAST, provider=provider)
        .read("o")
        .bytes()
    )


@pytest.mark.parametrize("by", ["options", "environment"])
def test_a_cluster_that_wants_a_certificate_gets_it(
    mutual: tuple[str, list[str], dict[str, str]], monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    url, seen, files = mutual
    if by == "options":
        provider = headrace.AisOptions(
            ca_file=files["ca"],
            client_cert_file=files["trainer"],
            client_key_file=files["trainer-key"],
            direct=False,
        )
    else:
        provider = headrace.AisOptions(direct=False)
        monkeypatch.setenv("AIS_CLIENT_CA", files["ca"])
        monkeypatch.setenv("AIS_CRT", files["trainer"])
        monkeypatch.setenv("AIS_CRT_KEY", files["trainer-key"])
    assert read_at(url, provider) == b"hello"
    assert set(seen) == {"trainer@example.test"}


def test_a_certificate_that_is_missing_or_not_accepted_is_told_at_once(
    mutual: tuple[str, list[str], dict[str, str]],
) -> None:
    url, seen, files = mutual
    for provider, said in (
        (headrace.AisOptions(ca_file=files["ca"]), "client_cert_file"),
        (
            headrace.AisOptions(
                ca_file=files["ca"],
                client_cert_file=files["stranger"],
                client_key_file=files["stranger-key"],
            ),
            "stranger.pem",
        ),
    ):
        with pytest.raises(headrace.PermissionDeniedError, match=said):
            read_at(url, provider)
    assert seen == []


def test_files_that_do_not_belong_together_are_named(
    mutual: tuple[str, list[str], dict[str, str]],
) -> None:
    url, _, files = mutual
    provider = headrace.AisOptions(
        ca_file=files["ca"],
        client_cert_file=files["trainer"],
        client_key_file=files["stranger-key"],
    )
    with pytest.raises(headrace.InvalidArgumentError, match=r"stranger\.key.*trainer\.pem"):
        read_at(url, provider)
