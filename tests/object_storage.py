"""A real S3 server on loopback with an empty bucket, and an environment that names it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from moto.server import ThreadedMotoServer
from pyarrow.fs import S3FileSystem

BUCKET = "proofs"

__all__ = ["BUCKET", "endpoint", "files"]


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """HOST:PORT."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"{host}:{port}"
    server.stop()


@pytest.fixture
def files(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The server's files; `BUCKET` is there for one test."""
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://{endpoint}", "AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    files = S3FileSystem(
        endpoint_override=endpoint, scheme="http", region="us-east-1", allow_bucket_creation=True,
        allow_bucket_deletion=True,
    )  # fmt: skip
    files.create_dir(BUCKET)
    yield files
    files.delete_dir(BUCKET)
