"""Google credentials: every kind of Application Default Credentials, against servers of our own."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import headrace
from testing.faultserver.client import FaultServer

Child = Callable[..., object]


class TokenServer:
    """Answers every request for a token with T1, T2, ...; plays metadata server, too."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.status = 200
        self.lifetime_s = 3600
        self.hang = threading.Event()
        self.hang.set()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                self.rfile.read(int(self.headers.get("content-length", 0)))
                if "token" in self.path:
                    outer.requests.append(self.path)
                    outer.hang.wait(300)
                body = json.dumps(outer.body(self.path)).encode()
                self.send_response(outer.status)
                self.send_header("Metadata-Flavor", "Google")
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = answer  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.host = f"127.0.0.1:{self._server.server_port}"
        self.url = f"http://{self.host}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def body(self, path: str) -> dict[str, Any]:
        if path.startswith("/computeMetadata") and "token" not in path:
            return {"email": "me@example.com", "scopes": [], "aliases": ["default"]}
        return {
            "access_token": f"T{len(self.requests)}",
            "token_type": "Bearer",
            "issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
            "expires_in": self.lifetime_s,
        }

    def close(self) -> None:
        self.hang.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def tokens() -> Iterator[TokenServer]:
    server = TokenServer()
    yield server
    server.close()


@pytest.fixture
def guarded(server: FaultServer) -> FaultServer:
    """A server with one object that T1 and T2 may read."""
    server.put("bucket", "a", b"hello")
    server.auth(["T1", "T2"])
    return server


def authorized_user(tokens: TokenServer, _: Path) -> dict[str, str]:
    return {
        "type": "authorized_user",
        "client_id": "c",
        "client_secret": "s",
        "refresh_token": "r",
    }


def service_account(tokens: TokenServer, _: Path) -> dict[str, str]:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return {
        "type": "service_account",
        "client_email": "me@example.com",
        "token_uri": f"{tokens.url}/token",
        "private_key": key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ).decode(),
    }


def external_account(tokens: TokenServer, folder: Path) -> dict[str, Any]:
    subject = folder / "subject"
    subject.write_text("a token of another identity provider")
    return {
        "type": "external_account",
        # With a project's number in it google-auth would ask Google for the project's name.
        "audience": "//iam.googleapis.com/locations/global/workloadIdentityPools/p/providers/p",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": f"{tokens.url}/token",
        "credential_source": {"file": str(subject)},
    }


READ = """
import sys
import headrace
store = headrace.Store("gs://bucket", endpoint=sys.argv[1], credentials="google")
assert store.read("a").bytes() == b"hello"
assert store.read_many(["a"] * 10)
"""


@pytest.mark.parametrize("kind", [authorized_user, service_account, external_account])
def test_credentials_of_a_file(
    run_child: Child, guarded: FaultServer, tokens: TokenServer, tmp_path: Path, kind: Any
) -> None:
    file = tmp_path / "credentials.json"
    file.write_text(json.dumps(kind(tokens, tmp_path)))
    run_child(
        # The one address that a file cannot change is that of a user's own tokens.
        f"""
import google.oauth2.credentials
google.oauth2.credentials._GOOGLE_OAUTH2_TOKEN_ENDPOINT = "{tokens.url}/token"
"""
        + READ,
        guarded.url,
        GOOGLE_APPLICATION_CREDENTIALS=str(file),
    )
    assert tokens.requests == ["/token"]


def metadata_environment(tokens: TokenServer, folder: Path) -> dict[str, str]:
    return {
        "GCE_METADATA_HOST": tokens.host,
        "GCE_METADATA_IP": tokens.host,
        "CLOUDSDK_CONFIG": str(folder),
        "HOME": str(folder),
    }


def test_credentials_of_the_metadata_server(
    run_child: Child, guarded: FaultServer, tokens: TokenServer, tmp_path: Path
) -> None:
    run_child(READ, guarded.url, **metadata_environment(tokens, tmp_path))
    assert len(tokens.requests) == 1


def test_no_credentials_at_all(run_child: Child, guarded: FaultServer, tmp_path: Path) -> None:
    run_child(
        """
        import sys
        import headrace
        store = headrace.Store("gs://bucket", endpoint=sys.argv[1], credentials="google")
        try:
            store.read("a")
        except headrace.PermissionDeniedError as error:
            assert "gcloud auth application-default login" in str(error), error
            assert 'credentials="anonymous"' in str(error), error
        else:
            raise AssertionError
        """,
        guarded.url,
        NO_GCE_CHECK="true",
        CLOUDSDK_CONFIG=str(tmp_path),
        HOME=str(tmp_path),
    )


class Source:
    """What google-auth's credentials look like; tokens T1, T2, ..."""

    def __init__(self) -> None:
        self.token: str | None = None
        self.expiry = None
        self.refreshes = 0
        self.threads: set[str] = set()
        self.gate = threading.Event()
        self.gate.set()
        self.failure: Exception | None = None

    @property
    def valid(self) -> bool:
        return self.token is not None

    def refresh(self, request: object) -> None:
        self.threads.add(threading.current_thread().name)
        self.gate.wait(120)
        if self.failure is not None:
            raise self.failure
        self.refreshes += 1
        self.token = f"T{self.refreshes}"


def test_an_object_of_google_auth_is_asked_on_the_credentials_thread(guarded: FaultServer) -> None:
    source = Source()
    store = headrace.Store("gs://bucket", endpoint=guarded.url, credentials=source)
    for _ in range(3):
        assert store.read("a").bytes() == b"hello"
    assert source.refreshes == 1
    assert source.threads == {"headrace-credentials"}


def test_a_refused_token_is_renewed_once(guarded: FaultServer) -> None:
    source = Source()
    store = headrace.Store("gs://bucket", endpoint=guarded.url, credentials=source)
    store.read("a")
    guarded.auth(["T2"])
    assert store.read("a").bytes() == b"hello"
    assert source.refreshes == 2
    guarded.auth(["nobody's"])
    with pytest.raises(headrace.PermissionDeniedError) as caught:
        store.read("a")
    assert caught.value.http_status == 401
    assert source.refreshes == 3


def test_a_refresh_that_fails_is_told(guarded: FaultServer) -> None:
    source = Source()
    source.failure = ValueError("the vault is locked")
    store = headrace.Store("gs://bucket", endpoint=guarded.url, credentials=source)
    with pytest.raises(headrace.PermissionDeniedError, match="ValueError: the vault is locked"):
        store.read("a")


def test_a_refresh_that_hangs_holds_up_nobody_past_the_deadline(guarded: FaultServer) -> None:
    source = Source()
    source.gate.clear()
    short = headrace.TimeoutOptions(total_s=0.2)
    store = headrace.Store("gs://bucket", endpoint=guarded.url, credentials=source, timeout=short)
    with pytest.raises(headrace.TimedOutError):
        store.read("a")
    guarded.put("open", "b", b"public")
    guarded.auth([])
    anonymous = headrace.Store("gs://open", endpoint=guarded.url)
    assert anonymous.read("b").bytes() == b"public"
    source.gate.set()
    # Of the same source, and not by a deadline that a busy machine could miss.
    patient = headrace.Store("gs://bucket", endpoint=guarded.url, credentials=source)
    assert patient.read("a").bytes() == b"hello"


def test_ctrl_c_and_exit_do_not_wait_for_a_refresh(
    run_child: Child, guarded: FaultServer, tokens: TokenServer, tmp_path: Path
) -> None:
    tokens.hang.clear()
    file = tmp_path / "credentials.json"
    file.write_text(json.dumps(service_account(tokens, tmp_path)))
    run_child(
        """
        import os, signal, sys, threading
        import google.oauth2.service_account
        import headrace
        source = google.oauth2.service_account.Credentials
        refresh, started = source.refresh, threading.Event()
        source.refresh = lambda *arguments: (started.set(), refresh(*arguments))
        def interrupt():
            started.wait()
            os.kill(os.getpid(), signal.SIGINT)
        threading.Thread(target=interrupt).start()
        store = headrace.Store("gs://bucket", endpoint=sys.argv[1], credentials="google")
        try:
            store.read("a")  # the token never comes, and the deadline is five minutes away
        except KeyboardInterrupt:
            pass
        else:
            raise AssertionError
        """,
        guarded.url,
        GOOGLE_APPLICATION_CREDENTIALS=str(file),
    )


def test_a_bearer_token_is_sent(guarded: FaultServer) -> None:
    token = headrace.BearerToken("T1")
    store = headrace.Store("gs://bucket", endpoint=guarded.url, credentials=token)
    assert store.read("a").bytes() == b"hello"
    wrong = headrace.BearerToken("T9")
    with pytest.raises(headrace.PermissionDeniedError) as caught:
        headrace.Store("gs://bucket", endpoint=guarded.url, credentials=wrong).read("a")
    assert caught.value.http_status == 401


def test_another_endpoint_sees_no_token_unasked(guarded: FaultServer) -> None:
    with pytest.raises(headrace.PermissionDeniedError):
        headrace.Store("gs://bucket", endpoint=guarded.url).read("a")
    assert all("authorization" not in entry["headers"] for entry in guarded.log())


def test_a_child_makes_tokens_of_its_own(
    run_child: Child, guarded: FaultServer, tokens: TokenServer, tmp_path: Path
) -> None:
    file = tmp_path / "credentials.json"
    file.write_text(json.dumps(service_account(tokens, tmp_path)))
    run_child(
        READ
        + """
import os
child = os.fork()
if child == 0:
    os._exit(0 if store.read("a").bytes() == b"hello" else 1)
assert os.waitpid(child, 0)[1] == 0
""",
        guarded.url,
        GOOGLE_APPLICATION_CREDENTIALS=str(file),
    )
    assert tokens.requests == ["/token"] * 2
