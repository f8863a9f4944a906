"""`headrace doctor`: whether this machine can work with a bucket, and if not, what to do."""

from __future__ import annotations

import email.utils
import http.client
import importlib.metadata
import json
import os
import platform
import re
import resource
import secrets
import ssl
import statistics
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, Literal

import headrace
from headrace import (
    HeadraceError,
    InvalidArgumentError,
    NotFoundError,
    ObjectInfo,
    PermissionDeniedError,
    Store,
)
from headrace._base.options import Environment, provider_of, read_environment
from headrace._cli.location import Connection, Location
from headrace._cli.report import ExitCode, Report, binary_size, counted, shown
from headrace._credentials.ca_files import ca_file
from headrace._process import process
from headrace._process.verdict import Watch, verdict_of
from headrace._store.location import after_scheme, scheme_of

__all__ = ["Finding", "doctor"]

# As many connections as there may be to a host, with room for everything else.
_LEAST_FILES = 1024
_LEAST_SHM_BYTES = 64 << 20
_OLDEST_TORCH = (2, 3)
_LISTED_OBJECTS = 1000
_READ_OBJECTS = 16
_READ_BYTES = 64 << 10
_BATCH_BYTES = 16 << 20
# S3 takes no smaller part but the last.
_PART_BYTES = 5 << 20
_THROUGHPUT_OBJECTS = 256
_ASK_S = 5.0
# Services refuse signatures that are a quarter of an hour off.
_MOST_SKEW_S = 300.0
# How Google's services speak of the project that a request is charged to.
_PROJECT = re.compile(
    r"requester pays|user ?project|quota project|unknown project|serviceusage", re.IGNORECASE
)
_SERVICES = {"gs": "https://storage.googleapis.com", "s3": "https://s3.amazonaws.com"}


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What one look has found."""

    verdict: Literal["ok", "warning", "problem"]
    subject: str
    detail: str
    advice: str = ""


def doctor(url: str | None, connection: Connection, report: Report, *, writes: bool) -> None:
    """Look at the installation, and at what is at `url`; print what was found.

    A problem makes the exit code 1.

    Args:
        writes: also write an object, read it again and delete it.
    """
    verdicts = set()
    for finding in _findings(url, connection, writes=writes):
        report.check()
        verdicts.add(finding.verdict)
        if report.as_json:
            print(json.dumps({"type": "finding", **asdict(finding)}), flush=True)
            continue
        print(f"{finding.verdict:8} {finding.subject}: {shown(finding.detail)}", flush=True)
        if finding.advice:
            print(f"{'':8} -> {shown(finding.advice)}", flush=True)
    if "problem" in verdicts:
        report.fail(ExitCode.FAILED)


def _findings(url: str | None, connection: Connection, *, writes: bool) -> Iterator[Finding]:
    environment = read_environment()
    yield _versions()
    yield from _torch()
    yield from _fsspec()
    yield _open_files()
    yield from _memory()
    yield _certificates(environment)
    yield from _proxies(environment)
    if url is None:
        return
    location = Location.parse(url, connection)
    if not location.is_file:
        scheme = scheme_of(location.store.url)
        for looks in ((_configuration,), (_credentials, _clock)):
            has_problem = False
            for look in looks:
                for finding in look(location.store, scheme, environment):
                    yield finding
                    has_problem |= finding.verdict == "problem" and finding.subject != "clock"
            if has_problem:  # whatever is asked now fails for the same reason
                return
    yield from _bucket(location, writes=writes)


# ---- this machine


def _versions() -> Finding:
    libc, libc_version = platform.libc_ver()
    return Finding(
        verdict="ok",
        subject="versions",
        detail=f"headrace {headrace.__version__}, Python {platform.python_version()}, "
        f"{platform.system()} {platform.release()} on {platform.machine()}, "
        f"{libc or 'libc'} {libc_version}",
    )


def _torch() -> Iterator[Finding]:
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        yield Finding(
            verdict="ok",
            subject="torch",
            detail="not installed; headrace.torch and headrace.checkpoint need it",
        )
        return
    numbers = tuple(int(each) for each in re.findall(r"\d+", version)[:2])
    if numbers < _OLDEST_TORCH:
        oldest = ".".join(map(str, _OLDEST_TORCH))
        yield Finding(
            verdict="problem",
            subject="torch",
            detail=f"{version}, and headrace.torch needs {oldest}",
            advice=f"pip install 'torch>={oldest}'",
        )
        return
    yield Finding(verdict="ok", subject="torch", detail=version)


def _fsspec() -> Iterator[Finding]:
    """Find schemes that several packages claim: which of them fsspec takes is not said anywhere."""
    claims: dict[str, set[str]] = {}
    for entry in importlib.metadata.entry_points(group="fsspec.specs"):
        package = entry.dist.name if entry.dist else entry.value
        claims.setdefault(entry.name, set()).add(package)
    for scheme, packages in sorted(claims.items()):
        if len(packages) > 1:
            yield Finding(
                verdict="warning",
                subject="fsspec",
                detail=f"{scheme}:// is registered by several packages: "
                f"{', '.join(sorted(packages))}; fsspec uses any one of them",
                advice="uninstall all but one, or call headrace.fsspec.register(override=True)",
            )


def _open_files() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < _LEAST_FILES:
        return Finding(
            verdict="warning",
            subject="open files",
            detail=f"{soft} at most, and a store may open 512 connections",
            advice=f"ulimit -n {min(hard, 65536)}",
        )
    return Finding(verdict="ok", subject="open files", detail=f"{soft} at most")


def _memory() -> Iterator[Finding]:
    budget_bytes = process.current_engine().budget_bytes
    free_bytes = _available_bytes()
    told = f"the budget is {binary_size(budget_bytes)}, {binary_size(free_bytes)} are free"
    if budget_bytes > free_bytes:
        yield Finding(
            verdict="warning",
            subject="memory",
            detail=told,
            advice=f"HEADRACE_MEMORY_BUDGET_BYTES={free_bytes // 2}, or headrace.configure()",
        )
    else:
        yield Finding(verdict="ok", subject="memory", detail=told)
    try:
        shm = os.statvfs("/dev/shm")
    except OSError as error:
        yield Finding(
            verdict="warning",
            subject="/dev/shm",
            detail=f"{error.strerror}; workers of torch's DataLoader pass their batches there",
            advice="mount a tmpfs there, or use headrace.torch.Loader, which has no workers",
        )
        return
    size_bytes = shm.f_frsize * shm.f_blocks
    if size_bytes <= _LEAST_SHM_BYTES:
        yield Finding(
            verdict="warning",
            subject="/dev/shm",
            detail=f"{binary_size(size_bytes)}, which is little for workers of torch's DataLoader",
            advice="docker run --shm-size=8g, or use headrace.torch.Loader, which has no workers",
        )
        return
    yield Finding(verdict="ok", subject="/dev/shm", detail=binary_size(size_bytes))


def _available_bytes() -> int:
    """Return what this process may still take: of the machine, or of its container."""
    found = []
    with open("/proc/meminfo") as file:
        found += [int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable:")]
    try:
        with (
            open("/sys/fs/cgroup/memory.max") as limit,
            open("/sys/fs/cgroup/memory.current") as used,
        ):
            found.append(max(0, int(limit.read()) - int(used.read())))
    except (OSError, ValueError):  # no container, or one without a limit ("max")
        pass
    return min(found)


def _certificates(environment: Environment) -> Finding:
    subject = "CA roots"
    if environment.ca_file:
        named = f"SSL_CERT_FILE={environment.ca_file}"
        try:
            ssl.create_default_context(cafile=environment.ca_file)
        except (OSError, ssl.SSLError) as error:
            return Finding(
                verdict="problem",
                subject=subject,
                detail=f"{named}: {error}",
                advice="let it name a file of certificates in PEM form, or unset it",
            )
        return Finding(verdict="ok", subject=subject, detail=named)
    context = ssl.create_default_context(cafile=ca_file("") or None)
    count = context.cert_store_stats()["x509_ca"]
    if count == 0:
        return Finding(
            verdict="problem",
            subject=subject,
            detail="there are none, so no https:// service can be trusted",
            advice="apt-get install ca-certificates, or pip install certifi",
        )
    return Finding(verdict="ok", subject=subject, detail=counted(count, "certificate"))


def _proxies(environment: Environment) -> Iterator[Finding]:
    for name in ("http_proxy", "https_proxy", "no_proxy"):
        value = getattr(environment, name)
        if value:
            yield Finding(verdict="ok", subject=name, detail=_without_password(value))


def _without_password(text: str) -> str:
    authority = after_scheme(text)
    _, at, host = authority.rpartition("@")
    return f"{text[: len(text) - len(authority)]}...@{host}" if at else text


# ---- the service


def _configuration(store: Store, scheme: str, _: Environment) -> Iterator[Finding]:
    """Tell where requests to ``s3://`` go, and what has said so."""
    if scheme != "s3":
        return
    subject = "configuration"
    try:
        aws = store._settings.aws_configuration()
    except InvalidArgumentError as error:
        yield Finding(verdict="problem", subject=subject, detail=str(error))
        return
    found = {
        "profile": aws.profile or "default",
        "endpoint": aws.endpoint or "AWS's own",
        "region": aws.region or "found out by the first request",
    }
    told = (
        f"{what} {value}" + (f" ({aws.origins[what]})" if what in aws.origins else "")
        for what, value in found.items()
    )
    yield Finding(verdict="ok", subject=subject, detail=", ".join(told))


def _credentials(store: Store, scheme: str, environment: Environment) -> Iterator[Finding]:
    try:
        detail = _credentials_found(store, scheme, environment)
    except Exception as error:  # of google-auth or botocore, of any kind
        logs_in = {
            "gs": "gcloud auth application-default login",
            "s3": "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        }
        yield Finding(
            verdict="problem",
            subject="credentials",
            detail=" ".join(str(error).split()) or type(error).__name__,
            advice=logs_in.get(scheme, "AIS_AUTHN_TOKEN or AIS_AUTHN_TOKEN_FILE")
            + "; --anonymous for public buckets",
        )
        return
    yield Finding(verdict="ok", subject="credentials", detail=detail)


def _credentials_found(store: Store, scheme: str, environment: Environment) -> str:
    """Tell which ones requests are made with, and nothing that is secret.

    Raises:
        Exception: there are none.
    """
    options = store._settings.engine_options(scheme)
    if options["credentials"] is None:
        return "none: requests are anonymous"
    if scheme == "gs":
        from headrace._credentials.google import _find_default

        found: Any = _find_default()
        who = getattr(found, "service_account_email", None) or getattr(found, "account", None)
        return f"{type(found).__module__}.{type(found).__name__}" + (f", {who}" if who else "")
    if scheme == "s3":
        if environment.aws_keys() is not None:
            return "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY of the environment"
        from headrace._credentials.aws import find_in_chain

        keys = find_in_chain(store._settings.aws_configuration())
        if keys is None:
            raise LookupError("botocore has found none")
        return f"botocore's, from {keys.method}"
    return "a token of AuthN"


def _clock(store: Store, scheme: str, environment: Environment) -> Iterator[Finding]:
    """Compare the clock with the service's, and so see whether it can be reached at all."""
    provider = provider_of(scheme)
    options = store._settings.engine_options(scheme)
    endpoint = options["endpoint"] or _SERVICES.get(provider)
    if not endpoint or (provider == "ais" and _skips_verification(store, environment)):
        return
    context = ssl.create_default_context(cafile=options["ca_file"] or None)
    opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context))
    begin_s = time.time()
    try:
        with opener.open(urllib.request.Request(endpoint, method="HEAD"), timeout=_ASK_S) as answer:
            date = answer.headers.get("Date")
    except urllib.error.HTTPError as error:  # an answer, too
        if error.code == http.client.PROXY_AUTHENTICATION_REQUIRED:
            yield Finding(
                verdict="problem",
                subject="service",
                detail=f"{endpoint}: a proxy in between wants a name and a password (HTTP 407)",
                advice="https_proxy=http://name:password@host:port, or no_proxy for this host",
            )
            return
        date = error.headers.get("Date")
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        advice = "is the address right, and does a firewall or a proxy stand in the way?"
        if isinstance(reason, ssl.SSLError):
            advice = "let SSL_CERT_FILE name the certificates that this service is signed with"
        yield Finding(
            verdict="problem", subject="service", detail=f"{endpoint}: {reason}", advice=advice
        )
        return
    except http.client.HTTPException as error:  # which none of the above is
        yield Finding(
            verdict="problem",
            subject="service",
            detail=f"{endpoint} does not answer in HTTP: {str(error) or type(error).__name__}",
            advice="is the port right, and is it http:// or https://?",
        )
        return
    took_s = time.time() - begin_s
    yield Finding(
        verdict="ok", subject="service", detail=f"{endpoint} answers after {took_s * 1e3:.0f} ms"
    )
    try:
        theirs_s = email.utils.parsedate_to_datetime(date or "").timestamp()
    except (OverflowError, ValueError):
        return
    skew_s = begin_s + took_s / 2 - theirs_s
    if abs(skew_s) > _MOST_SKEW_S:
        yield Finding(
            verdict="problem",
            subject="clock",
            detail=f"{abs(skew_s):.0f} s {'ahead of' if skew_s > 0 else 'behind'} the service's: "
            "signatures and tokens are refused",
            advice="set the clock, for example by timedatectl set-ntp true",
        )
    else:
        yield Finding(verdict="ok", subject="clock", detail="agrees with the service's")


def _skips_verification(store: Store, environment: Environment) -> bool:
    return store._settings.ais.skip_verify or environment.ais_skip_verify


# ---- the bucket


def _bucket(location: Location, *, writes: bool) -> Iterator[Finding]:
    store, below = location.store, location.name
    begin_s = time.perf_counter()
    found: list[ObjectInfo] = []
    try:
        found = list(islice(store.list(below, max_results=_LISTED_OBJECTS), _LISTED_OBJECTS))
        took_s = time.perf_counter() - begin_s
        told = counted(len(found), "object") if len(found) < _LISTED_OBJECTS else "1,000 objects"
        yield Finding(
            verdict="ok" if found else "warning",
            subject="list",
            detail=f"{told} below {location.url} in {took_s * 1e3:.0f} ms",
            advice="" if found else "is the prefix right?",
        )
    except HeadraceError as error:
        yield _failed("list", error, _PERMISSIONS["list"])
    if found:
        yield from _reads(store, found)
    if writes:
        yield _write(location)
        if scheme_of(location.url) == "s3":
            yield _sums(location)


_PERMISSIONS = {
    "list": "storage.objects.list (gs://), s3:ListBucket (s3://)",
    "read": "storage.objects.get (gs://), s3:GetObject (s3://)",
    "write": "storage.objects.create and delete (gs://), s3:PutObject and s3:DeleteObject (s3://)",
}


def _failed(subject: str, error: HeadraceError, permission: str) -> Finding:
    advice = ""
    if _PROJECT.search(str(error)):
        advice = (
            "the project that pays is missing, wrong or not yours: set it by "
            "provider=GcsOptions(user_project=...), or unset GOOGLE_CLOUD_QUOTA_PROJECT and "
            "gcloud auth application-default set-quota-project PROJECT"
        )
    elif isinstance(error, PermissionDeniedError):
        advice = f"needs the permission {permission}"
    elif isinstance(error, NotFoundError):
        advice = "is the name right, and does it lie at this service and in this account?"
    return Finding(verdict="problem", subject=subject, detail=str(error), advice=advice)


def _reads(store: Store, found: list[ObjectInfo]) -> Iterator[Finding]:
    step = max(1, len(found) // _READ_OBJECTS)
    chosen = [info for info in found if info.size_bytes > 0][::step][:_READ_OBJECTS]
    if not chosen:
        return

    def read(info: ObjectInfo) -> int:
        return len(store.read(info, begin=0, end=min(info.size_bytes, _READ_BYTES)))

    took_s = []
    try:
        for info in chosen:
            took_s.append(_timed(lambda info=info: read(info)))  # type: ignore[misc]
    except HeadraceError as error:
        yield _failed("read", error, _PERMISSIONS["read"])
        return
    took_s.sort()
    yield Finding(
        verdict="ok",
        subject="read",
        detail=f"{counted(len(chosen), 'object')}, up to {binary_size(_READ_BYTES)} of each, one "
        f"after the other: median {statistics.median(took_s) * 1e3:.1f} ms, "
        f"slowest {took_s[-1] * 1e3:.1f} ms",
    )
    yield from _throughput(store, found)


def _throughput(store: Store, found: list[ObjectInfo]) -> Iterator[Finding]:
    """Read what is small enough, as many at a time as go, and say what limits that."""
    small = [info for info in found if 0 < info.size_bytes <= _BATCH_BYTES // _READ_OBJECTS]
    if not small:
        return
    batches = (
        [small[(first + at) % len(small)] for at in range(_READ_OBJECTS)]
        for first in range(0, _THROUGHPUT_OBJECTS, _READ_OBJECTS)
    )
    watch, begin_s, read_bytes = Watch(), time.perf_counter(), 0
    try:
        for samples in store.read_batches(batches):
            read_bytes += sum(map(len, samples))
            if time.perf_counter() - begin_s >= _ASK_S:
                break
    except HeadraceError as error:
        yield _failed("throughput", error, _PERMISSIONS["read"])
        return
    took_s = time.perf_counter() - begin_s
    verdict = verdict_of(watch.evidence(duration_s=took_s, wait_s=took_s, bytes_wait_s=took_s))
    yield Finding(
        verdict="ok",
        subject="throughput",
        detail=f"{binary_size(read_bytes / took_s)}/s, many at a time; limited by {verdict}",
    )


def _timed(work: Callable[[], object]) -> float:
    begin_s = time.perf_counter()
    work()
    return time.perf_counter() - begin_s


_PROOFS = {
    "crc32c": "a CRC-32C of the whole object",
    "crc64nvme": "a CRC-64/NVME of the whole object",
    "composite": "a CRC-32C of each part",
    "md5": "Content-MD5 of each request",
    "none": "nothing but the size",
}


def _sums(location: Location) -> Finding:
    """What proves the bytes of what is written to this bucket; an upload in two parts shows it."""
    store, name = location.store, _new_name(location)
    try:
        try:
            store.write(name, b"headrace doctor")
            writer = store.open_writer(name, part_bytes=_PART_BYTES)
            writer.write(bytes(_PART_BYTES + 1))
            writer.close()
        finally:
            store.delete(name, missing_ok=True)
    except HeadraceError as error:
        return _failed("checksums", error, _PERMISSIONS["write"])
    handle = store._handle()
    small, large = (handle.written_sums(in_parts=each) or "none" for each in (False, True))
    unproved = "none" in (small, large)
    return Finding(
        verdict="warning" if unproved else "ok",
        subject="checksums",
        detail=f"small writes are proved by {_PROOFS[small]}, uploads in parts by {_PROOFS[large]}",
        advice="nothing finds bytes that change on their way to this service" if unproved else "",
    )


def _new_name(location: Location) -> str:
    folder = location.name if location.is_folder else location.name + "/"
    return f"{folder}headrace-doctor-{secrets.token_hex(8)}"


def _write(location: Location) -> Finding:
    name = _new_name(location)
    store = location.store
    data = secrets.token_bytes(1000)
    try:
        store.write(name, data, if_generation="absent")
        try:
            if store.read(name).bytes() != data:
                return Finding(
                    verdict="problem", subject="write", detail=f"{name} has other bytes now"
                )
        finally:
            store.delete(name, missing_ok=True)
    except HeadraceError as error:
        return _failed("write", error, _PERMISSIONS["write"])
    return Finding(verdict="ok", subject="write", detail="an object was written, read and deleted")
