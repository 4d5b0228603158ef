"""Servers that speak the S3 protocol, from wheels."""

import json
import os
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from tests.services.ports import LOOPBACK, free_port
from tests.services.processes import ServerProcess

RCLONE = "rclone"  # fast to start; checks signatures; keeps objects as files, and their metadata in memory
SEAWEEDFS = "weed"  # slower to start; the most faithful: multipart uploads, lifecycle rules, checksums
BUCKET = "haybaler-test"
# What the servers of the tests know, under the names that boto looks for; nothing of the machine's own settings.
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": os.environ.get("HAYBALER_TEST_S3_KEY", "haybaler"),
    "AWS_SECRET_ACCESS_KEY": os.environ.get("HAYBALER_TEST_S3_SECRET", "only-for-tests"),
    "AWS_CONFIG_FILE": "/nowhere/config",
    "AWS_SHARED_CREDENTIALS_FILE": "/nowhere/credentials",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_DEFAULT_REGION": "us-east-1",
}

Command = Callable[[int, Path], Sequence[str]]


class S3Server:
    """
    One server.

    :param port: Where it listens.
    """

    process: ServerProcess  # of one that the tests have started

    def __init__(self, port: int) -> None:
        self.port = port
        self.client = raw_client(f"http://{LOOPBACK}:{port}")

    @property
    def endpoint(self) -> str:
        """Its URL."""
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def credentials(self) -> Mapping[str, str]:
        """What it knows its clients by, under the names that boto looks for."""
        return ENVIRONMENT

    def keys(self, prefix: str = "") -> list[str]:
        """Return the keys of all objects, sorted."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        return sorted(found["Key"] for page in pages for found in page.get("Contents", ()))

    def uploads(self) -> list[str]:
        """Return the keys of the uploads that are neither completed nor aborted."""
        return [upload["Key"] for upload in self.client.list_multipart_uploads(Bucket=BUCKET).get("Uploads", ())]

    def damage(self, key: str) -> None:
        """Change the last byte of an object, and nothing that is said of it."""
        found = self.client.get_object(Bucket=BUCKET, Key=key)
        body = found["Body"].read()
        self.client.put_object(
            Bucket=BUCKET, Key=key, Body=body[:-1] + bytes([body[-1] ^ 1]), Metadata=found["Metadata"]
        )


def raw_client(endpoint: str) -> Any:
    """Return a client that shows what really stands in a server."""
    return boto3.session.Session().client(
        "s3",
        endpoint_url=endpoint,
        aws_access_key_id=ENVIRONMENT["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=ENVIRONMENT["AWS_SECRET_ACCESS_KEY"],
        region_name=ENVIRONMENT["AWS_DEFAULT_REGION"],
        config=Config(
            retries={"total_max_attempts": 1},
            connect_timeout=1,
            s3={"addressing_style": "path"},
            response_checksum_validation="when_required",
        ),
    )


@contextmanager
def s3_server(kind: str = RCLONE) -> Iterator[S3Server]:
    """
    Run a server with an empty bucket.

    :param kind: `RCLONE` or `SEAWEEDFS`.
    :returns: The server, while it runs.
    """
    with tempfile.TemporaryDirectory(prefix="haybaler-") as folder:
        server = _started(_COMMANDS[kind], Path(folder))
        try:
            yield server
        finally:
            server.client.close()
            server.process.kill()


@contextmanager
def external_server(endpoint: str) -> Iterator[S3Server]:
    """
    Use a server that somebody else runs on this machine; `HAYBALER_TEST_S3_KEY` and `_SECRET` are its credentials.

    :param endpoint: Its URL.
    :returns: The server.
    """
    server = S3Server(urlsplit(endpoint).port or 80)
    try:
        _make_bucket(server)
        yield server
    finally:
        server.client.close()


def _started(command: Command, folder: Path) -> S3Server:
    for attempt in range(5):
        server = S3Server(free_port())
        server.process = ServerProcess(command(server.port, folder), folder, partial(_answers, server))
        try:
            server.process.start()
        except RuntimeError:
            server.client.close()
            if attempt == 4:
                raise
        else:
            return server
    raise AssertionError


def _answers(server: S3Server) -> bool:
    """Whether a server is there and takes objects, which some do a moment after they begin to answer."""
    try:
        _make_bucket(server)
        server.client.put_object(Bucket=BUCKET, Key="ready", Body=b"")
        server.client.delete_object(Bucket=BUCKET, Key="ready")
    except (BotoCoreError, ClientError):
        return False
    return True


def _make_bucket(server: S3Server) -> None:
    if BUCKET not in [bucket["Name"] for bucket in server.client.list_buckets().get("Buckets", ())]:
        server.client.create_bucket(Bucket=BUCKET)


def _rclone(port: int, folder: Path) -> list[str]:
    data = folder / "data"
    data.mkdir(exist_ok=True)
    keys = f"{ENVIRONMENT['AWS_ACCESS_KEY_ID']},{ENVIRONMENT['AWS_SECRET_ACCESS_KEY']}"
    return [_binary(RCLONE), "serve", "s3", "--auth-key", keys, str(data), "--addr", f"{LOOPBACK}:{port}"]


def _seaweedfs(port: int, folder: Path) -> list[str]:
    data, identities = folder / "data", folder / "identities.json"
    data.mkdir(exist_ok=True)
    credentials = {"accessKey": ENVIRONMENT["AWS_ACCESS_KEY_ID"], "secretKey": ENVIRONMENT["AWS_SECRET_ACCESS_KEY"]}
    identity = {"name": "tests", "credentials": [credentials], "actions": ["Admin", "Read", "Write", "List", "Tagging"]}
    identities.write_text(json.dumps({"identities": [identity]}))
    ports: Mapping[str, int] = {
        name: free_port()
        for part in ("master", "volume", "filer", "s3")
        for name in (f"{part}.port", f"{part}.port.grpc")
        if name != "s3.port"
    }
    return [
        *(_binary(SEAWEEDFS), "server", f"-ip={LOOPBACK}", f"-ip.bind={LOOPBACK}", f"-dir={data}"),
        *("-s3.port.iceberg=0", "-s3.port.lance=0"),
        *("-s3", f"-s3.port={port}", f"-s3.config={identities}", "-master.telemetry=false"),
        *("-master.volumeSizeLimitMB=64", "-volume.max=12", "-volume.minFreeSpacePercent=0"),
        *(f"-{name}={number}" for name, number in ports.items()),
    ]


def _binary(name: str) -> str:
    return str(Path(sysconfig.get_path("scripts"), name))


_COMMANDS: dict[str, Command] = {RCLONE: _rclone, SEAWEEDFS: _seaweedfs}
