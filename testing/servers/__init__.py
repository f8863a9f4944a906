"""Real servers for tests and benchmarks, each a context manager bound to loopback.

FakeGcsServer   fake-gcs-server, in memory          fake_gcs.py
Nginx           static files, latency, TLS          nginx.py
MinioServer     MinIO, which speaks S3              minio.py
MinioAsGcs      multipart uploads to MinIO          minio.py
DelayedServer   latency and a log before another    delayed.py
FarLine         a long line before another          far_line.py
RoundTrips      counts what a client waits for      rounds.py
AistoreCluster  AIStore, proxies and targets         aistore.py
client_of       botocore, on any server of S3       s3_client.py
Certificates    a CA of our own and what it signed  certificates.py
"""

from testing.servers.aistore import AistoreCluster
from testing.servers.certificates import Certificates
from testing.servers.delayed import DelayedServer, LoggedRequest
from testing.servers.fake_gcs import FakeGcsServer
from testing.servers.far_line import FarLine
from testing.servers.minio import MinioServer
from testing.servers.nginx import Nginx
from testing.servers.rounds import RoundTrips

__all__ = [
    "AistoreCluster",
    "Certificates",
    "DelayedServer",
    "FakeGcsServer",
    "FarLine",
    "LoggedRequest",
    "MinioServer",
    "Nginx",
    "RoundTrips",
]
