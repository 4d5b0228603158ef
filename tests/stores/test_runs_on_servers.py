"""Runs with scopes of their own on real servers, from event loops and threads at once; nothing of them stays."""

import pytest
from tests.faults.test_many_runs import Server, script, serve_from_several_threads
from tests.hooks.agents import ScriptedModel
from tests.services.redis_servers import RedisServer
from tests.services.s3_servers import BUCKET, S3Server

from haybaler_redis import RedisToolResultStore
from haybaler_s3 import S3ToolResultStore

RUNS = 60


@pytest.mark.parametrize("tag", ["", "{tag}"])
def test_runs_at_once_see_their_own_on_redis(valkey: RedisServer, prefix: str, tag: str) -> None:
    with RedisToolResultStore(valkey.url, prefix=prefix + tag, ttl=60) as store:
        serve_from_several_threads(Server(store, ScriptedModel(script)), RUNS, "loops and threads")
    assert valkey.client.keys(f"*{prefix}*") == []


def test_runs_at_once_see_their_own_on_a_cluster(cluster: list[RedisServer], prefix: str) -> None:
    nodes = ",".join(f"127.0.0.1:{server.port}" for server in cluster)
    with RedisToolResultStore(f"redis://{nodes}", cluster=True, prefix=prefix, ttl=60) as store:
        serve_from_several_threads(Server(store, ScriptedModel(script)), RUNS, "loops and threads")
    assert [key for server in cluster for key in server.client.keys(f"*{prefix}*")] == []


@pytest.mark.usefixtures("s3_environment")
def test_runs_at_once_see_their_own_on_s3(rclone: S3Server, prefix: str) -> None:
    with S3ToolResultStore(BUCKET, prefix=prefix, endpoint_url=rclone.endpoint) as store:
        serve_from_several_threads(Server(store, ScriptedModel(script)), RUNS, "loops and threads")
    assert rclone.keys(prefix) == []
