"""How requests get to a server: accounts, tokens, TLS, proxies."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

import headrace
from testing.faultserver.client import FaultServer
from testing.servers import Certificates
from tests.faults.conftest import FAST, OpenStore

PROXY_VARIABLES = ["http_proxy", "https_proxy", "no_proxy", "all_proxy"]


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROXY_VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


def all_calls(store: headrace.Store) -> None:
    store.write("a/b", b"bytes")
    assert store.read("a/b").bytes() == b"bytes"
    assert store.read_many(["a/b"])[0].bytes() == b"bytes"
    assert [info.name for info in store.list()] == ["a/b"]
    assert store.stat("a/b").size_bytes == 5
    store.copy("a/b", "c")
    store.delete("c")


def test_a_requester_pays_bucket(server: FaultServer, open_store: OpenStore) -> None:
    server.bucket("bucket", requester_pays=True)
    all_calls(open_store(provider=headrace.GcsOptions(user_project="a project")))
    assert all("userProject=a%20project" in line["target"] for line in server.log())
    with pytest.raises(headrace.InvalidArgumentError, match="requester pays") as caught:
        open_store().read("a/b")
    assert caught.value.http_status == 400


def test_a_token(server: FaultServer, open_store: OpenStore) -> None:
    server.auth(["right"])
    all_calls(open_store(credentials=headrace.BearerToken("right")))
    for credentials in (headrace.BearerToken("wrong"), "anonymous"):
        with pytest.raises(headrace.PermissionDeniedError) as caught:
            open_store(credentials=credentials).read("a/b")
        assert (caught.value.url, caught.value.http_status) == ("gs://bucket/a/b", 401)
        assert "wrong" not in str(caught.value)


def test_a_token_that_is_refused_is_renewed_once(
    server: FaultServer, open_store: OpenStore
) -> None:
    credentials_module = pytest.importorskip("google.auth.credentials")
    made: list[str] = []

    class Credentials(credentials_module.Credentials):  # type: ignore[name-defined, misc]
        def refresh(self, request: object) -> None:
            made.append(f"token-{len(made)}")
            self.token = made[-1]

    server.put("bucket", "o", b"x")
    server.auth(["token-1"])
    store = open_store(credentials=Credentials())
    assert store.read("o").bytes() == b"x"
    assert made == ["token-0", "token-1"]
    assert [line["status"] for line in server.log()] == [401, 206]
    server.auth(["token-2"])  # the old one has ended
    assert store.read("o").bytes() == b"x"
    server.auth(["never given"])
    with pytest.raises(headrace.PermissionDeniedError):
        store.read("o")
    assert len(made) == 4  # no endless renewing


def test_many_requests_share_one_renewal(server: FaultServer, open_store: OpenStore) -> None:
    credentials_module = pytest.importorskip("google.auth.credentials")
    made: list[str] = []

    class Credentials(credentials_module.Credentials):  # type: ignore[name-defined, misc]
        def refresh(self, request: object) -> None:
            made.append(f"token-{len(made)}")
            self.token = made[-1]

    names = [f"{i}" for i in range(100)]
    for name in names:
        server.put("bucket", name, name.encode())
    store = open_store(credentials=Credentials())
    server.auth(["token-0"])
    assert [s.bytes().decode() for s in store.read_many(names)] == names
    assert made == ["token-0"]
    server.auth(["token-1"])
    assert [s.bytes().decode() for s in store.read_many(names)] == names
    assert made == ["token-0", "token-1"]


@pytest.fixture
def tls_server(certificates: Certificates) -> Iterator[FaultServer]:
    with FaultServer(tls_cert=certificates.cert_file, tls_key=certificates.key_file) as server:
        server.bucket("bucket")
        headrace.shutdown()
        yield server


def test_tls_with_a_ca_of_ones_own(
    tls_server: FaultServer, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.ca_file))
    for host in ("127.0.0.1", "localhost"):
        endpoint = f"https://{host}:{tls_server.port}"
        all_calls(headrace.Store("gs://bucket", endpoint=endpoint, retry=FAST))


def test_tls_sessions_are_resumed(
    tls_server: FaultServer, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.ca_file))
    headrace.configure(io_threads=1)
    try:
        tls_server.put("bucket", "o", b"x")
        store = headrace.Store("gs://bucket", endpoint=tls_server.url, retry=FAST)
        for _ in range(5):
            assert store.read("o").bytes() == b"x"
            tls_server.close_connections("fin")
        assert store.read("o").bytes() == b"x"
        assert headrace.metrics().tls_resumed_total >= 4
        assert tls_server.stats()["tls_handshakes_resumed"] >= 4
    finally:
        headrace.shutdown()
        headrace.configure()


@pytest.mark.parametrize("trusted", ["the system's CAs", "another CA"])
def test_a_certificate_that_is_not_trusted_is_told(
    tls_server: FaultServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    trusted: str,
) -> None:
    if trusted == "another CA":
        monkeypatch.setenv("SSL_CERT_FILE", str(Certificates(tmp_path).ca_file))
    store = headrace.Store("gs://bucket", endpoint=tls_server.url, retry=FAST)
    with pytest.raises(headrace.HeadraceError, match="certificate") as caught:
        store.read("o")
    assert caught.value.url == "gs://bucket/o"
    assert tls_server.log() == []


def test_a_certificate_for_another_name_is_told(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.ca_file))
    with FaultServer(
        bind="127.0.0.2", tls_cert=certificates.cert_file, tls_key=certificates.key_file
    ) as server:
        endpoint = f"https://127.0.0.2:{server.port}"
        store = headrace.Store("gs://bucket", endpoint=endpoint, retry=FAST)
        with pytest.raises(headrace.HeadraceError, match="certificate"):
            store.read("o")
        assert server.log() == []


def test_a_tunnel_through_a_proxy(
    server: FaultServer,
    tls_server: FaultServer,
    certificates: Certificates,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The proxy sees a CONNECT to a name that only it can resolve."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.ca_file))
    monkeypatch.setenv("HTTPS_PROXY", server.url)
    server.connect_map({"localhost:4443": f"127.0.0.1:{tls_server.port}"})
    all_calls(headrace.Store("gs://bucket", endpoint="https://localhost:4443", retry=FAST))
    assert {line["target"] for line in server.log()} == {"localhost:4443"}
    assert {line["kind"] for line in server.log()} == {"connect"}
    assert tls_server.stats()["requests"] > 0


def test_no_proxy_goes_past_it(
    server: FaultServer,
    tls_server: FaultServer,
    certificates: Certificates,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.ca_file))
    monkeypatch.setenv("HTTPS_PROXY", server.url)
    for rule in ("127.0.0.1", "*", f"example.com,127.0.0.1:{tls_server.port}", "127.0.0.0/8"):
        monkeypatch.setenv("NO_PROXY", rule)
        all_calls(headrace.Store("gs://bucket", endpoint=tls_server.url, retry=FAST))
    assert server.log() == []


def test_a_proxy_that_refuses_is_told(
    server: FaultServer, tls_server: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", server.url)
    server.faults([{"match": {"kind": "connect"}, "action": {"status": 407}}])
    store = headrace.Store("gs://bucket", endpoint=tls_server.url, retry=FAST)
    with pytest.raises(headrace.HeadraceError, match="407") as caught:
        store.read("o")
    assert caught.value.url == "gs://bucket/o"
    assert tls_server.log() == []


def test_plain_http_through_a_proxy(
    server: FaultServer, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The target stands in absolute form; nobody but the proxy need resolve the name."""
    monkeypatch.setenv("http_proxy", server.url)
    all_calls(open_store(endpoint="http://storage.example:8080"))
    assert all(line["absolute_form"] for line in server.log())


def test_an_emulators_endpoint_from_the_environment(
    server: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"{server.host}:{server.port}")
    all_calls(headrace.Store("gs://bucket", retry=FAST))
    assert all(not line["headers"].get("authorization") for line in server.log())


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no ::1")
def test_ipv6(server: FaultServer, open_store: OpenStore) -> None:
    with FaultServer(bind="::1") as six:
        six.bucket("bucket")
        assert "[::1]" in six.url
        all_calls(open_store(endpoint=six.url))
