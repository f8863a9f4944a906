"""nginx on loopback: the fastest server of static bytes, with latency and TLS on request."""

from __future__ import annotations

import datetime
import os
import resource
import tempfile
import urllib.parse
from collections.abc import Mapping
from pathlib import Path
from xml.sax.saxutils import escape

from testing.servers.certificates import Certificates
from testing.servers.process import Running, ServerProcess

_TEMPLATE = Path(__file__).with_name("nginx.conf.in")
_MODULES = Path("/usr/lib/nginx/modules")

S3_HEADERS = (
    "add_header x-amz-checksum-crc32c $s3_sum; add_header x-amz-checksum-type $s3_sum_type;"
)
"""What a location needs that has headers of its own: nginx forgets those of the server there."""


class Nginx(Running):
    """Serves `root`: `/BUCKET/NAME`, and the same by the media paths of the GCS JSON API.

    With `sums` it looks like S3 (path style), too: these buckets are listed, by pages of 1,000, and
    their objects come with their CRC32C when `x-amz-checksum-mode` asks for it. It verifies no
    signature, and an ETag is nginx's own.

    sums:          {bucket: {name: CRC32C in base64}}, of files that are there; nginx cannot tell
                   names apart that differ in upper and lower case only
    latency_s:     every GET waits so long before its first byte, any number of them at once
    tail:          (share, seconds): so many of the GETs, at random, wait so long instead
    sigma:         the wait is log-normal with this shape, and `latency_s` is its median
    certificates:  speak TLS
    http2:         and HTTP/2, where a client offers it; frames of 16 KiB
    workers:       worker processes
    access_log:    a line is added to this file for each answer: method, status, bytes of the body
    nopush:        send whole segments alone, and the last one after the others, as many
                   installations do; see nginx.conf.in
    locations:     nginx configuration that goes into the server block
    globals:       nginx configuration that goes into the http block
    """

    def __init__(
        self,
        root: Path,
        *,
        latency_s: float = 0.0,
        tail: tuple[float, float] = (0.0, 0.0),
        sigma: float = 0.0,
        certificates: Certificates | None = None,
        http2: bool = False,
        host: str = "127.0.0.1",
        port: int = 0,
        workers: int = 1,
        nopush: bool = False,
        access_log: Path | None = None,
        locations: str = "",
        globals: str = "",
        sums: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="headrace-nginx-")
        folder = Path(self._folder.name)
        authority = f"[{host}]" if ":" in host else host
        modules = latency = tls = ""
        s3_globals, s3_locations = _s3_face(Path(root).resolve(), folder, sums or {})
        log = f"access_log {access_log} sent;" if access_log else "access_log off;"
        share, tail_s = tail
        if latency_s or share or sums:
            modules = "".join(
                f"load_module {_MODULES / name};\n"
                for name in ("ndk_http_module.so", "ngx_http_lua_module.so")
            )
        if latency_s or share:
            # Of a normal variable, after Box and Muller; math.random() is less than 1.
            radius = "math.sqrt(-2 * math.log(1 - math.random()))"
            normal = f"{radius} * math.cos(2 * math.pi * math.random())"
            latency = (
                "access_by_lua_block { ngx.sleep("
                f"math.random() < {share:.6f} and {tail_s:.6f} or {latency_s:.6f}"
                f" * math.exp({sigma:.6f} * {normal})) }}"
            )
        if certificates:
            tls = (
                f"ssl_certificate {certificates.cert_file};\n"
                f"    ssl_certificate_key {certificates.key_file};\n"
                "    ssl_session_cache shared:tls:8m;"
                + ("\n    http2_chunk_size 16k;" if http2 else "")
            )

        def command(port: int) -> list[str]:
            values = {
                "modules": modules,
                # As root nginx would serve as nobody, who may not read the test's folders.
                "user": "user root;" if os.geteuid() == 0 else "",
                "workers": str(workers),
                "nopush": "on" if nopush else "off",
                # Connections need descriptors, too; without one nginx accepts nothing any more.
                "open_files": str(resource.getrlimit(resource.RLIMIT_NOFILE)[1] // 2),
                "folder": str(folder),
                "listen": f"{authority}:{port}"
                + (" ssl" if certificates else "")
                + (" http2" if http2 else ""),
                "root": str(Path(root).resolve()),
                "tls": tls,
                "latency": latency,
                "log": log,
                "locations": f"{s3_locations}\n    {locations}",
                "globals": f"{s3_globals}\n  {globals}",
            }
            text = _TEMPLATE.read_text()
            for name, value in values.items():
                text = text.replace(f"@{name}@", value)
            config = folder / "nginx.conf"
            config.write_text(text)
            return ["/usr/sbin/nginx", "-p", str(folder), "-e", "stderr", "-c", str(config)]

        try:
            self._process = ServerProcess(command, host=host, port=port, log_file=folder / "log")
        except BaseException:
            self._folder.cleanup()
            raise
        self.port = self._process.port
        self.url = f"{'https' if certificates else 'http'}://{authority}:{self.port}"

    def stop(self) -> None:
        """End the server and its workers."""
        self._process.stop()
        self._folder.cleanup()

    @property
    def pid(self) -> int:
        """The master process."""
        return self._process.pid

    def output(self) -> str:
        """What the server has printed so far."""
        return self._process.output()


def _s3_face(root: Path, folder: Path, sums: Mapping[str, Mapping[str, str]]) -> tuple[str, str]:
    """Write the tables of the S3 face into `folder`; return its global and server configuration."""
    if not sums:
        return "", ""
    by_path = []
    locations = [S3_HEADERS]
    for index, (bucket, objects) in enumerate(sums.items()):
        lines = []
        for name in sorted(objects, key=str.encode):
            by_path.append(f'"{_quoted(f"/{bucket}/{name}")}" "{objects[name]}";\n')
            status = (root / bucket / name).stat()
            seconds = int(status.st_mtime)
            modified = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
            facts = (
                f"<LastModified>{modified:%Y-%m-%dT%H:%M:%S}.000Z</LastModified>"
                # As nginx makes it.
                f"<ETag>&quot;{seconds:x}-{status.st_size:x}&quot;</ETag>"
                "<ChecksumAlgorithm>CRC32C</ChecksumAlgorithm>"
                "<ChecksumType>FULL_OBJECT</ChecksumType>"
                f"<Size>{status.st_size}</Size><StorageClass>STANDARD</StorageClass>"
            )
            url = urllib.parse.quote_plus(name, safe="/*")
            lines.append(f"{name}\t{escape(name)}\t{url}\t{facts}\n")
        table = folder / f"s3-listing-{index}"
        table.write_text("".join(lines))
        for path in (f"/{bucket}", f"/{bucket}/"):
            locations.append(
                f'location = {path} {{ content_by_lua_block {{ require("nginx_s3").answer('
                f'"{bucket}", "{table}") }} }}'
            )
    (folder / "s3-sums").write_text("".join(by_path))
    return (
        f"""lua_package_path "{_TEMPLATE.parent}/?.lua;;";
  # After a condition that failed nginx closes the connection, though it has promised to keep it,
  # and a client may lose its next request. Without a length, and not chunked, it announces the end.
  chunked_transfer_encoding off;
  header_filter_by_lua_block {{
    if ngx.status == 412 then ngx.header.content_length = nil end
  }}
  map_hash_max_size {max(2048, 2 * len(by_path))};
  map_hash_bucket_size 256;
  map $uri $s3_sum_of_name {{
    default "";
    include {folder / "s3-sums"};
  }}
  # Of a range the service tells no checksum.
  map "$http_x_amz_checksum_mode:$http_range" $s3_sum {{
    default "";
    "ENABLED:" $s3_sum_of_name;
  }}
  map $s3_sum $s3_sum_type {{
    default FULL_OBJECT;
    "" "";
  }}""",
        "\n    ".join(locations),
    )


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
