"""nginx on loopback: the fastest server of static bytes, with latency and TLS on request."""

from __future__ import annotations

import os
import resource
import tempfile
from pathlib import Path

from testing.servers.certificates import Certificates
from testing.servers.process import Running, ServerProcess

_TEMPLATE = Path(__file__).with_name("nginx.conf.in")
_MODULES = Path("/usr/lib/nginx/modules")


class Nginx(Running):
    """Serves `root`: `/BUCKET/NAME`, and the same by the media paths of the GCS JSON API.

    latency_s:     every GET waits so long before its first byte, any number of them at once
    certificates:  speak TLS
    workers:       worker processes
    locations:     nginx configuration that goes into the server block
    globals:       nginx configuration that goes into the http block
    """

    def __init__(
        self,
        root: Path,
        *,
        latency_s: float = 0.0,
        certificates: Certificates | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        workers: int = 1,
        locations: str = "",
        globals: str = "",
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="headrace-nginx-")
        folder = Path(self._folder.name)
        authority = f"[{host}]" if ":" in host else host
        modules = latency = tls = ""
        if latency_s:
            modules = "".join(
                f"load_module {_MODULES / name};\n"
                for name in ("ndk_http_module.so", "ngx_http_lua_module.so")
            )
            latency = f"access_by_lua_block {{ ngx.sleep({latency_s:.6f}) }}"
        if certificates:
            tls = (
                f"ssl_certificate {certificates.cert_file};\n"
                f"    ssl_certificate_key {certificates.key_file};\n"
                "    ssl_session_cache shared:tls:8m;"
            )

        def command(port: int) -> list[str]:
            values = {
                "modules": modules,
                # As root nginx would serve as nobody, who may not read the test's folders.
                "user": "user root;" if os.geteuid() == 0 else "",
                "workers": str(workers),
                # Connections need descriptors, too; without one nginx accepts nothing any more.
                "open_files": str(resource.getrlimit(resource.RLIMIT_NOFILE)[1] // 2),
                "folder": str(folder),
                "listen": f"{authority}:{port}" + (" ssl" if certificates else ""),
                "root": str(Path(root).resolve()),
                "tls": tls,
                "latency": latency,
                "locations": locations,
                "globals": globals,
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
