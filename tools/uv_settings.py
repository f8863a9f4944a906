"""Prints what pip is configured with as variables of uv, each NAME=VALUE and a zero byte.

What the environment already says to uv is left alone. pip's own order counts: its variables before
its files, what is for `pip install` before what is for all.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys


def configured(listing: str) -> dict[str, str]:
    """The settings that `pip install` goes by, from what `pip config list` prints."""
    found: dict[str, tuple[int, str]] = {}
    for line in listing.splitlines():
        place, _, value = line.partition("=")
        section, _, name = place.rpartition(".")
        rank = {"global": 1, "install": 2, ":env:": 3}.get(section, 0)  # 0: of other commands
        if rank > found.get(name, (0, ""))[0]:
            found[name] = rank, str(ast.literal_eval(value))
    return {name: value for name, (_, value) in found.items()}


def for_uv(pip: dict[str, str]) -> dict[str, str]:
    """The variables of uv that say the same."""
    uv: dict[str, str] = {}
    if "index-url" in pip:
        uv["UV_DEFAULT_INDEX"] = pip["index-url"]
    if extra := pip.get("extra-index-url", "").split():
        uv["UV_INDEX"] = " ".join(extra)
        uv["UV_INDEX_STRATEGY"] = "unsafe-best-match"  # as pip does; the hashes are ours
    if folders := pip.get("find-links", "").split():
        uv["UV_FIND_LINKS"] = ",".join(folders)
    if pip.get("no-index", "").lower() in ("1", "true", "yes", "on"):
        uv["UV_NO_INDEX"] = "1"
    if hosts := pip.get("trusted-host", "").split():
        uv["UV_INSECURE_HOST"] = " ".join(hosts)
    if "cert" in pip:
        uv["SSL_CERT_FILE"] = pip["cert"]
    if "proxy" in pip:
        uv["ALL_PROXY"] = pip["proxy"]
    for name in ("default-timeout", "timeout"):
        if name in pip:
            uv["UV_HTTP_TIMEOUT"] = pip[name]
    return uv


def main() -> None:
    command = [sys.executable, "-m", "pip", "config", "list"]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    is_told = {"UV_DEFAULT_INDEX": os.environ.get("UV_INDEX_URL")}
    for name, value in for_uv(configured(listing)).items():
        if not (os.environ.get(name) or is_told.get(name)):
            sys.stdout.write(f"{name}={value}\0")


if __name__ == "__main__":
    main()
