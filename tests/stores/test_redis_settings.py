"""URLs, parameters, secrets and the serialized form; no test here connects to anything."""

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest
import redis
import redis.asyncio as aioredis
from haystack.utils import Secret
from tests.services.ports import free_port

from haybaler.errors import ConfigurationError, NotSerializableError, StoreError
from haybaler.stores.registry import store_from_url
from haybaler_redis import RedisToolResultStore
from haybaler_redis.connecting import open_async, open_sync
from haybaler_redis.endpoints import OPTIONS, Endpoint
from haybaler_redis.settings import Settings
from haybaler_redis.tls import VerifiedConnection

_PASSWORD = "p@ss:w/rd?%"
_QUOTED = "p%40ss%3Aw%2Frd%3F%25"


@pytest.mark.parametrize(
    ("url", "hosts", "path", "db", "user"),
    [
        ("redis://", [("localhost", 6379)], "", None, (None, None)),
        ("redis://host", [("host", 6379)], "", None, (None, None)),
        ("redis://host:1/", [("host", 1)], "", None, (None, None)),
        ("REDISS://host/7", [("host", 6379)], "", 7, (None, None)),
        ("redis://[::1]:6380/0", [("::1", 6380)], "", 0, (None, None)),
        ("redis://a:1,b,c:3", [("a", 1), ("b", 6379), ("c", 3)], "", None, (None, None)),
        (f"redis://:{_QUOTED}@host", [("host", 6379)], "", None, (None, _PASSWORD)),
        (f"redis://me%40home:{_QUOTED}@host/2", [("host", 6379)], "", 2, ("me@home", _PASSWORD)),
        ("unix:///run/redis%20a.sock", [], "/run/redis a.sock", None, (None, None)),
        ("unix://me:secret@/run/redis.sock", [], "/run/redis.sock", None, ("me", "secret")),
    ],
)
def test_a_url_says_where_and_who(
    url: str, hosts: list[tuple[str, int]], path: str, db: int | None, user: tuple[str | None, str | None]
) -> None:
    endpoint = Endpoint.parse(url)
    assert endpoint.addresses("server") == hosts
    assert (endpoint.path, endpoint.db) == (path, db)
    assert (endpoint.username, endpoint.password) == user
    assert "secret" not in repr(endpoint)
    assert _PASSWORD not in repr(endpoint)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "host:6379",
        "http://secret@host",
        "redis://secret@host",  # a user without a password
        "redis://:secret@host:port",
        "redis://:secret@host:0",
        "redis://:secret@host:65536",
        "redis://:secret@host/secret",
        "redis://:secret@host/-1",
        "redis://:secret@ho st",
        "redis://:secret@[::1",
        "redis://:secret@a,,b:x",
        "redis://:secret@host/0#secret",
        "redis://:secret@host?secret=1",
        "redis://:secret@host?db=secret",
        "redis://:sec?ret@host",
        "unix://host/secret",
        "unix://:secret@/",
        "unix://",
    ],
)
def test_a_url_that_says_nothing_of_use_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        RedisToolResultStore.from_url(url)
    assert "secret" not in str(caught.value).replace("option 'secret'", "")
    with pytest.raises(ConfigurationError):
        RedisToolResultStore(url)


@pytest.mark.parametrize("scheme", ["redis", "rediss"])
def test_every_option_of_a_url_is_a_parameter(scheme: str) -> None:
    store = store_from_url(
        f"{scheme}://host:1?prefix=results&ttl=60.5&max_bytes=5&max_connections=7&connect_timeout=1&timeout=2"
        "&pool_timeout=3&retries=4&db=5&sentinel=name&cluster=false"
        + ("&ssl_ca_certs=/a&ssl_certfile=/b&ssl_keyfile=/c" if scheme == "rediss" else "")
    )
    assert isinstance(store, RedisToolResultStore)
    given = store.to_dict()["init_parameters"]
    assert (given["prefix"], given["ttl"], given["max_bytes"], given["retries"]) == ("results", 60.5, 5, 4)
    assert (given["sentinel"], given["cluster"], given["db"]) == ("name", False, 5)
    assert given["url"] == f"{scheme}://host:1"
    assert set(OPTIONS) <= set(given)
    assert store.reference("a") == "redis:results/a"


@pytest.mark.parametrize(
    ("parameters", "name"),
    [
        ({"prefix": ""}, "prefix"),
        ({"prefix": "a b"}, "prefix"),
        ({"prefix": "é"}, "prefix"),
        ({"prefix": "{a}{b}"}, "prefix"),
        ({"prefix": "a}b"}, "prefix"),
        ({"prefix": "x" * 101}, "prefix"),
        ({"max_bytes": 0}, "max_bytes"),
        ({"max_bytes": 512 * 1024 * 1024}, "max_bytes"),
        ({"max_bytes": 1.5}, "max_bytes"),
        ({"max_connections": 0}, "max_connections"),
        ({"max_connections": True}, "max_connections"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": None}, "timeout"),
        ({"connect_timeout": float("inf")}, "connect_timeout"),
        ({"pool_timeout": -1}, "pool_timeout"),
        ({"retries": -1}, "retries"),
        ({"db": -1}, "db"),
        ({"cluster": True, "sentinel": "name"}, "cluster"),
        ({"cluster": True, "db": 1}, "database 0"),
        ({"url": "redis://a,b"}, "Several hosts"),
        ({"url": "redis://a/1", "db": 1}, "database"),
        ({"url": "unix:///a", "cluster": True}, "unix"),
        ({"ssl_ca_certs": "/a"}, "Certificates"),
        ({"url": "redis://:a@host", "password": Secret.from_token("b")}, "password"),
        ({"url": "redis://a:b@host", "username": "c"}, "username"),
        ({"password": Secret.from_env_var("HAYBALER_NO_SUCH_VARIABLE")}, "password"),
        ({"url": Secret.from_env_var("HAYBALER_NO_SUCH_VARIABLE")}, "url"),
    ],
)
def test_a_parameter_that_cannot_be_used_is_refused(parameters: dict[str, Any], name: str) -> None:
    with pytest.raises(ConfigurationError, match=name):
        RedisToolResultStore(**{"url": "redis://host", **parameters})


def test_secrets_are_serialized_by_name_and_resolved_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORE_URL", f"redis://me:{_QUOTED}@host")
    monkeypatch.setenv("STORE_PASSWORD", _PASSWORD)
    for store in (
        RedisToolResultStore(Secret.from_env_var("STORE_URL"), ttl=5),
        RedisToolResultStore("redis://host", username="me", password=Secret.from_env_var("STORE_PASSWORD"), ttl=5),
        RedisToolResultStore("redis://host", sentinel="a", sentinel_password=Secret.from_env_var("STORE_PASSWORD")),
    ):
        data = json.loads(json.dumps(store.scoped("run").to_dict()))
        assert _PASSWORD not in str(data)
        assert _QUOTED not in str(data)
        again = RedisToolResultStore.from_dict(data)
        assert again.to_dict() == data
        assert again.reference("a") == store.scoped("run").reference("a")


def test_a_password_in_plain_text_is_never_serialized() -> None:
    for store in (
        RedisToolResultStore(f"redis://:{_QUOTED}@host"),
        RedisToolResultStore.from_url(f"redis://me:{_QUOTED}@host?ttl=5"),
        RedisToolResultStore("redis://host", password=Secret.from_token(_PASSWORD)),
    ):
        with pytest.raises(NotSerializableError) as caught:
            store.to_dict()
        assert _PASSWORD not in str(caught.value)
        assert _QUOTED not in str(caught.value)


@pytest.mark.parametrize("most", [1, 2])
def test_a_client_that_keeps_its_only_connection_is_refused(most: int) -> None:
    client = aioredis.Redis(max_connections=most, single_connection_client=True)
    if most > 1:
        assert RedisToolResultStore(client=client).reference("a") == "redis:haybaler/a"
    else:
        with pytest.raises(ConfigurationError, match="only connection"):
            RedisToolResultStore(client=client)


@pytest.mark.parametrize("name", ["password", "sentinel_password"])
@pytest.mark.parametrize("value", [_PASSWORD, "", _PASSWORD.encode(), {"password": _PASSWORD}])
def test_a_password_is_a_secret_or_the_store_is_not_made(name: str, value: Any) -> None:
    given: dict[str, Any] = {name: value, "sentinel": "name"}
    data = RedisToolResultStore("redis://host", sentinel="name").to_dict()
    makes: list[Callable[[], object]] = [
        lambda: RedisToolResultStore("redis://host", **given),
        lambda: RedisToolResultStore(client=redis.Redis(), **{name: value}),
        lambda: RedisToolResultStore.from_url(f"redis://host?sentinel=name&{name}={_QUOTED}"),
        lambda: RedisToolResultStore.from_dict({**data, "init_parameters": {**data["init_parameters"], **given}}),
    ]
    for make in makes:
        with pytest.raises(ConfigurationError, match=name) as caught:
            make()
        assert _PASSWORD not in repr(caught.value)
        assert _QUOTED not in repr(caught.value)


@pytest.mark.parametrize("name", ["url", "username", "sentinel", "ssl_ca_certs", "ssl_certfile", "ssl_keyfile"])
@pytest.mark.parametrize("value", [5, b"text", Secret.from_token(_PASSWORD)])
def test_what_is_no_secret_is_text(name: str, value: Any) -> None:
    if name == "url" and isinstance(value, Secret):
        return
    with pytest.raises(ConfigurationError, match=name):
        RedisToolResultStore(**{"url": "rediss://host", name: value})


def test_credentials_are_nowhere_to_be_seen(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    url = f"redis://someone:{_QUOTED}@127.0.0.1:{free_port()}"
    store = RedisToolResultStore(url, retries=0)
    seen = [repr(store), str(store), store.reference("a"), repr(Settings.of(store._parameters))]
    with pytest.raises(StoreError) as caught:
        store.write(key="a", content="the content")
    error: BaseException | None = caught.value
    while error is not None:
        seen.append(repr(error))
        error = error.__cause__ or error.__context__
    seen += [repr(vars(record)) for record in caplog.records]
    for secret in (_PASSWORD, _QUOTED, "someone", "the content"):
        assert not [text for text in seen if secret in text]


@pytest.mark.anyio
@pytest.mark.parametrize("options", ["", "?sentinel=name", "?cluster=true"])
async def test_rows_9_and_10_every_kind_of_client_gets_the_same_times_and_no_retries_of_its_own(options: str) -> None:
    store = RedisToolResultStore.from_url(f"redis://127.0.0.1:1{options}")
    settings = Settings.of({**store._parameters, "timeout": 1.5, "connect_timeout": 2.5, "max_connections": 3})
    opened = [open_async(settings).client]
    opened += [] if settings.cluster else [open_sync(settings).client]  # the other one would connect
    for client in opened:
        kwargs = client.connection_kwargs if settings.cluster else client.connection_pool.connection_kwargs
        assert (kwargs["socket_timeout"], kwargs["socket_connect_timeout"]) == (1.5, 2.5)
        assert kwargs["socket_keepalive"] is True
        assert kwargs["health_check_interval"] > 0
        assert kwargs["protocol"] == 2
        if not settings.cluster:
            assert kwargs["retry"]._retries == 0
            assert client.connection_pool.max_connections == 3


@pytest.mark.anyio
@pytest.mark.parametrize("options", ["", "?sentinel=name", "?cluster=true"])
async def test_row_34_connections_share_what_certificates_are_checked_with(options: str) -> None:
    store = RedisToolResultStore.from_url(f"rediss://127.0.0.1:1{options}")
    client = open_async(Settings.of(store._parameters)).client
    if options == "?cluster=true":
        (node,) = client.nodes_manager.startup_nodes.values()
        made = [node.acquire_connection() for _ in range(2)]
    else:
        made = [client.connection_pool.make_connection() for _ in range(2)]
    assert all(isinstance(connection, VerifiedConnection) for connection in made)
    assert made[0]._verification is made[1]._verification
    assert all(connection.ssl_context.check_hostname for connection in made)
