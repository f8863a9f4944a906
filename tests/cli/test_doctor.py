"""`headrace doctor`."""

from __future__ import annotations

import http.server
import resource
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from headrace._base.options import Environment
from headrace._cli import doctor as module
from testing.faultserver.client import FaultServer
from tests.cli.conftest import Run, kinds

ANONYMOUS = "--anonymous"


def by_subject(lines: list[Any]) -> dict[str, Any]:
    assert all(line["type"] == "finding" for line in lines)
    return {line["subject"]: line for line in lines}


def test_a_bucket_that_works_has_no_problem(server: FaultServer, run: Run) -> None:
    for i in range(40):
        server.put("bucket", f"train/{i:02}", bytes(1000 * i))
    done = run("doctor", "gs://bucket/train/", "--json")
    assert (done.code, done.err) == (0, "")
    found = by_subject(done.json)
    assert {each["verdict"] for each in found.values()} <= {"ok", "warning"}
    assert found["list"]["detail"].startswith("40 objects below gs://bucket/train/ in ")
    assert found["read"]["detail"].startswith("16 objects, up to 64.0 KiB of each")
    assert found["credentials"]["detail"] == "none: requests are anonymous"
    assert found["clock"]["verdict"] == "ok"
    assert found["throughput"]["detail"].partition("; limited by ")[2]
    assert kinds(server)["media"] == 16 + 256
    assert "upload" not in kinds(server)


def test_write_leaves_nothing_behind(server: FaultServer, run: Run, tmp_path: Path) -> None:
    server.put("bucket", "train/a", b"x")
    done = run("doctor", "gs://bucket/train", "--write", "--json")
    assert by_subject(done.json)["write"]["verdict"] == "ok"
    assert kinds(server)["delete"] == 1
    assert run("ls", "gs://bucket/").lines == ["gs://bucket/train/"]
    done = run("doctor", tmp_path, "--write")
    assert done.code == 0
    assert list(tmp_path.iterdir()) == []
    assert "warning  list: 0 objects below" in done.out.decode()


@pytest.mark.parametrize(
    ("kind", "subject", "permission"),
    [
        ("list", "list", "storage.objects.list"),
        ("media", "read", "storage.objects.get"),
        ("upload", "write", "storage.objects.create"),
    ],
)
def test_a_missing_permission_is_named(
    server: FaultServer, run: Run, kind: str, subject: str, permission: str
) -> None:
    server.put("bucket", "a", b"x")
    server.faults([{"match": {"kind": kind}, "action": {"status": 403}}])
    done = run("doctor", "gs://bucket", "--write", "--json")
    assert done.code == 1
    found = by_subject(done.json)[subject]
    assert found["verdict"] == "problem"
    assert permission in found["advice"]
    assert "\n" not in run("doctor", "gs://bucket").err


def test_a_service_that_cannot_be_reached_is_asked_nothing_else(run: Run) -> None:
    done = run("doctor", "gs://bucket", "--endpoint", "http://127.0.0.1:9", "--json")
    assert done.code == 1
    found = by_subject(done.json)
    assert found["service"]["detail"].startswith("http://127.0.0.1:9: ")
    assert "Connection refused" in found["service"]["detail"]
    assert "list" not in found


def test_a_service_that_does_not_speak_http_is_a_problem(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(60)

        def answer() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"SSH-2.0-OpenSSH\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        done = run("doctor", "gs://bucket", "--endpoint", url, "--json")
        thread.join()
    assert (done.code, done.err) == (1, "")
    found = by_subject(done.json)
    assert "does not answer in HTTP: SSH-2.0" in found["service"]["detail"]
    assert "is the port right" in found["service"]["advice"]
    assert "list" not in found


def test_missing_credentials_say_how_to_log_in(run: Run, tmp_path: Path) -> None:
    nothing = {"HOME": str(tmp_path), "CLOUDSDK_CONFIG": str(tmp_path), "NO_GCE_CHECK": "true"}
    environment = {**nothing, "AWS_EC2_METADATA_DISABLED": "true", "STORAGE_EMULATOR_HOST": ""}
    for url, advice in (
        ("gs://bucket", "gcloud auth application-default login"),
        ("s3://bucket", "AWS_PROFILE"),
    ):
        done = run("doctor", url, "--json", https_proxy="http://127.0.0.1:9", **environment)
        assert done.code == 1
        found = by_subject(done.json)["credentials"]
        assert found["verdict"] == "problem"
        assert advice in found["advice"]
        assert "--anonymous" in found["advice"]


def test_no_secret_is_printed(server: FaultServer, run: Run) -> None:
    server.put("bucket", "a", b"x")
    done = run(
        "doctor",
        "gs://bucket",
        https_proxy="http://name:hunter2@127.0.0.1:9",
        AWS_SECRET_ACCESS_KEY="hunter3",
        AIS_AUTHN_TOKEN="hunter4",
    )
    text = done.out.decode() + done.err
    assert "https_proxy: http://...@127.0.0.1:9" in text
    assert "hunter" not in text
    assert "name" not in text.split("https_proxy")[1].split("\n")[0].replace("https_proxy", "")


@contextmanager
def serving(handler: type[http.server.BaseHTTPRequestHandler]) -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@contextmanager
def clock_that_is_off(by_s: float) -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response_only(404)
            self.send_header("Date", formatdate(time.time() + by_s, usegmt=True))
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with serving(Handler) as url:
        yield url


@pytest.mark.parametrize(("by_s", "told"), [(-7200, "ahead of"), (7200, "behind")])
def test_a_clock_that_is_off_is_a_problem(run: Run, by_s: float, told: str) -> None:
    with clock_that_is_off(by_s) as url:
        done = run("doctor", "gs://bucket", "--endpoint", url, "--attempts", 1, "--json")
    found = by_subject(done.json)["clock"]
    assert (done.code, found["verdict"]) == (1, "problem")
    assert told in found["detail"]
    assert "timedatectl" in found["advice"]


def test_roots_that_cannot_be_read_are_a_problem(run: Run, tmp_path: Path) -> None:
    (tmp_path / "odd.pem").write_text("no certificate")
    for file in (tmp_path / "odd.pem", tmp_path / "none.pem"):
        done = run("doctor", "--json", SSL_CERT_FILE=str(file))
        found = by_subject(done.json)["CA roots"]
        assert (done.code, found["verdict"]) == (1, "problem")
        assert str(file) in found["detail"]


def test_what_a_machine_lacks_is_said_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 4096))
    assert module._open_files().advice == "ulimit -n 4096"
    monkeypatch.setattr(module.importlib.metadata, "version", lambda _: "2.1.2+cu118")
    [torch] = module._torch()
    assert (torch.verdict, torch.advice) == ("problem", "pip install 'torch>=2.3'")
    monkeypatch.setattr(module, "_available_bytes", lambda: 100 << 20)
    memory, *_ = module._memory()
    assert (memory.verdict, "HEADRACE_MEMORY_BUDGET_BYTES=" in memory.advice) == ("warning", True)

    def no_shm(_: str) -> Any:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(module.os, "statvfs", no_shm)
    *_, shm = module._memory()
    assert (shm.verdict, "Loader" in shm.advice) == ("warning", True)
    monkeypatch.setattr(module, "ca_file", lambda _: "")
    monkeypatch.setattr(module.ssl, "create_default_context", lambda **_: _NoRoots())
    roots = module._certificates(Environment())
    assert (roots.verdict, "ca-certificates" in roots.advice) == ("problem", True)


class _NoRoots:
    def cert_store_stats(self) -> dict[str, int]:
        return {"x509_ca": 0}


def test_write_without_a_url_is_wrong_usage(run: Run) -> None:
    done = run("doctor", "--write")
    assert done.code == 2
    assert "--write needs the URL" in done.err


def test_a_proxy_that_wants_a_login_is_told_from_the_service(run: Run) -> None:
    class Proxy(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response_only(407)
            self.send_header("Proxy-Authenticate", "Basic")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with serving(Proxy) as proxy:
        endpoint = "http://storage.example"
        done = run(
            "doctor", "gs://bucket", "--endpoint", endpoint, "--json", http_proxy=proxy, no_proxy=""
        )
    found = by_subject(done.json)
    assert (done.code, found["service"]["verdict"]) == (1, "problem")
    assert "HTTP 407" in found["service"]["detail"]
    assert "https_proxy=" in found["service"]["advice"]
    assert "list" not in found


def test_a_proxy_that_is_not_there_is_named_as_a_possible_cause(run: Run) -> None:
    proxy = "http://127.0.0.1:9"
    done = run(
        "doctor", "gs://bucket", "--endpoint", "http://storage.example", "--json", http_proxy=proxy
    )
    found = by_subject(done.json)
    assert (done.code, found["service"]["verdict"]) == (1, "problem")
    assert "a proxy" in found["service"]["advice"]
    assert found["http_proxy"]["detail"] == proxy


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "Bucket is requester pays bucket but no user project provided."),
        (400, "Unknown project id: no-such-project"),
        (403, "Caller does not have required permission to use project p: serviceusage"),
    ],
)
def test_a_wrong_project_is_told_from_a_missing_permission(
    server: FaultServer, run: Run, status: int, message: str
) -> None:
    server.put("bucket", "a", b"x")
    server.faults([{"match": {"kind": "list"}, "action": {"status": status, "message": message}}])
    found = by_subject(run("doctor", "gs://bucket", "--json").json)["list"]
    assert found["verdict"] == "problem"
    assert message in found["detail"]
    assert "user_project=" in found["advice"]
    assert "permission" not in found["advice"]


def test_a_home_that_is_not_there_or_read_only_is_no_problem(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    for home in ("/proc/self", "/nowhere/at/all"):  # nobody can write there, root included
        environment = {"HOME": home, "XDG_CACHE_HOME": home, "XDG_CONFIG_HOME": home}
        done = run("doctor", tmp_path, "--write", "--json", **environment)
        assert (done.code, done.err) == (0, "")


def test_two_packages_that_register_a_scheme_are_named(run: Run, tmp_path: Path) -> None:
    for package in ("one-fs", "other-fs"):
        folder = tmp_path / f"{package.replace('-', '_')}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (folder / "entry_points.txt").write_text("[fsspec.specs]\ngs = headrace.none:Nothing\n")
    assert "fsspec" not in by_subject(run("doctor", "--json").json)
    done = run("doctor", "--json", PYTHONPATH=str(tmp_path))
    found = by_subject(done.json)["fsspec"]
    assert (done.code, found["verdict"]) == (0, "warning")
    assert "gs:// is registered by several packages: one-fs, other-fs" in found["detail"]
    assert "register(override=True)" in found["advice"]


def test_it_says_where_the_configuration_of_s3_is_from(
    s3_server: FaultServer, run: Run, tmp_path: Path
) -> None:
    s3_server.put("bucket", "a", b"x")
    config = tmp_path / "config"
    config.write_text(f"[profile own]\nregion = eu-west-1\nendpoint_url = {s3_server.url}\n")
    variables = {"AWS_CONFIG_FILE": str(config), "AWS_PROFILE": "own"}
    done = run("doctor", "s3://bucket", "--anonymous", "--json", **variables)
    told = by_subject(done.json)["configuration"]["detail"]
    assert "profile own (AWS_PROFILE)" in told
    assert f"endpoint {s3_server.url} (endpoint_url of [profile own] in {config})" in told
    assert f"region eu-west-1 (region of [profile own] in {config})" in told
    argument = ["--endpoint", s3_server.url, "--region", "eu-west-2"]
    done = run("doctor", "s3://bucket", "--anonymous", "--json", *argument)
    told = by_subject(done.json)["configuration"]["detail"]
    assert f"profile default, endpoint {s3_server.url} (endpoint=), region eu-west-2" in told
    done = run("doctor", "s3://bucket", "--json", **{**variables, "AWS_PROFILE": "gone"})
    assert done.code == 1
    found = by_subject(done.json)
    assert found["configuration"]["verdict"] == "problem"
    assert "AWS_PROFILE is 'gone'" in found["configuration"]["detail"]
    assert "credentials" not in found
