"""S3Mock: Adobe's stand-in for S3, in Java."""

from __future__ import annotations

from testing.servers.process import REPOSITORY, S3InFolder

JAR = REPOSITORY / "build" / "servers" / "s3mock.jar"
"""What `tools/servers.sh s3mock` fetches; it needs a Java runtime."""


class S3MockServer(S3InFolder):
    """One server, which takes any keys."""

    def __init__(self) -> None:
        super().__init__(
            "s3mock",
            lambda folder, port: [
                "java",
                "-jar",
                str(JAR),
                "--server.port=0",  # for TLS
                "--server.address=127.0.0.1",
                f"--com.adobe.testing.s3mock.httpPort={port}",
                f"--com.adobe.testing.s3mock.store.root={folder / 'data'}",
            ],
        )
