"""Runs AWS's published vectors of Signature Version 4 through the engine's signer.

    .venv/bin/python -m tests.signing.run_vectors CHECKOUT

CHECKOUT is a checkout of https://github.com/awslabs/aws-c-auth; nothing of it is kept here. Vectors
whose path is normalised are left out and named: S3 signs paths as they are.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import re
import sys
from pathlib import Path
from urllib.parse import quote

from tests.signing.signer import Signer

SUITE = "tests/aws-signing-test-suite/v4"


def run(signer: Signer, case: Path) -> str:
    """ "passed", "left out: why", or "FAILED: how"."""
    context = json.loads((case / "context.json").read_text())
    head, _, body = (case / "header-signed-request.txt").read_text().partition("\n\n")
    request_line, *lines = head.split("\n")
    method, _, target = request_line.removesuffix(" HTTP/1.1").partition(" ")
    path, mark, query = target.partition("?")
    # The vectors have the target before it is encoded for the wire.
    path, query = quote(path, safe="/~"), quote(query, safe="=&%~")
    canonical = (case / "header-canonical-request.txt").read_text().split("\n")
    if canonical[1] != path:
        return f"left out: the path {target!r} is normalised"
    if any(line.startswith((" ", "\t")) for line in lines):
        return "left out: a header value of several lines, which HTTP forbids"
    authorization = next(line for line in lines if line.startswith("Authorization:"))
    found = re.search(r"SignedHeaders=(\S+), Signature=(\w+)", authorization)
    assert found
    names = set(found[1].split(";"))
    host = next(line.split(":", 1)[1] for line in lines if line.lower().startswith("host:"))
    signed = [line for line in lines if line.split(":", 1)[0].lower() in names - {"host"}]
    credentials = context["credentials"]
    time = datetime.datetime.fromisoformat(context["timestamp"])
    signature = signer(
        as_="signature",
        method=method,
        target=path + mark + query,
        authority=host.strip(),
        headers="".join(f"{line}\r\n" for line in signed),
        payload=hashlib.sha256(body.encode()).hexdigest(),
        time_s=int(time.timestamp()),
        access_key_id=credentials["access_key_id"],
        secret_access_key=credentials["secret_access_key"],
        session_token=credentials.get("token", ""),
        region=context["region"],
        service=context["service"],
    )
    return "passed" if signature == found[2] else f"FAILED: {signature} is not {found[2]}"


def main() -> int:
    if len(sys.argv) != 2 or not (Path(sys.argv[1]) / SUITE).is_dir():
        print(__doc__, file=sys.stderr)
        return 2
    with Signer() as signer:
        outcomes = {
            case.name: run(signer, case) for case in sorted((Path(sys.argv[1]) / SUITE).iterdir())
        }
    for name, outcome in outcomes.items():
        print(f"{name}: {outcome}")
    passed = list(outcomes.values()).count("passed")
    failed = sum(outcome.startswith("FAILED") for outcome in outcomes.values())
    print(f"{passed} passed, {failed} failed, {len(outcomes) - passed - failed} left out")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
