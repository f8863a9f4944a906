"""Real servers for tests and benchmarks, each a context manager bound to loopback.

FakeGcsServer   fake-gcs-server, in memory          fake_gcs.py
Nginx           static files, latency, TLS          nginx.py
MinioServer     MinIO, which speaks S3              minio.py
MinioAsGcs      multipart uploads to MinIO          minio.py
DelayedServer   latency and a log before another    delayed.py
AistoreCluster  AIStore, proxies and targets         aistore.py
client_of       botocore, on any server of S3       s3_client.py
Certificates    a CA of our own and what it signed  certificates.py
"""

from testing.servers.aistore import AistoreCluster
from testing.servers.certificates import Certificates
from testing.servers.delayed import DelayedServer, LoggedRequest
from testing.servers.fake_gcs import FakeGcsServer
from testing.servers.minio import MinioServer
from testing.servers.nginx import Nginx

__all__ = [
    "AistoreCluster",
    "Certificates",
    "DelayedServer",
    "FakeGcsServer",
    "LoggedRequest",
    "MinioServer",
    "Nginx",
]
