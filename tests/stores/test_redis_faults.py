"""What goes wrong in a server or on the way to it: the right error, soon, and no trace in the next operation."""

import asyncio
import random
import signal
import ssl
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import trustme
from haystack.utils import Secret
from tests.services.ports import free_port
from tests.services.proxy import Proxy, proxy_to
from tests.services.redis_servers import REDIS, VALKEY, RedisServer, redis_server, until
from tests.services.scripted import scripted_server

from haybaler.errors import (
    CorruptEntryError,
    EntryTooLargeError,
    ReferenceNotFoundError,
    StoreConfigurationError,
    StoreError,
    StoreTimeoutError,
    StoreUnavailableError,
)
from haybaler.stores.protocol import StoreEntry
from haybaler.testing import Cancellation, cancel_at
from haybaler.workers import run_in_worker
from haybaler_redis import RedisToolResultStore

_ENTRIES = [StoreEntry(f"key-{number}", f"content {number}") for number in range(300)]


class Colour:
    """Each fault is looked at through a store's synchronous and its asynchronous methods."""

    def __init__(self, name: str) -> None:
        self.is_async = name == "async"

    def write_many(self, store: RedisToolResultStore, entries: list[StoreEntry]) -> list[str | StoreError]:
        return asyncio.run(store.write_many_async(entries)) if self.is_async else store.write_many(entries)

    def read(self, store: RedisToolResultStore, reference: str) -> str | bytes:
        return asyncio.run(store.read_async(reference)) if self.is_async else store.read(reference)

    def delete(self, store: RedisToolResultStore, reference: str) -> None:
        asyncio.run(store.delete_async([reference])) if self.is_async else store.delete([reference])

    def warm_up(self, store: RedisToolResultStore) -> None:
        asyncio.run(store.warm_up_async()) if self.is_async else store.warm_up()

    def delete_scope(self, store: RedisToolResultStore) -> None:
        asyncio.run(store.delete_scope_async()) if self.is_async else store.delete_scope()


@pytest.fixture(params=["sync", "async"])
def colour(request: pytest.FixtureRequest) -> Colour:
    return Colour(request.param)


def _assert_each_operation_raises(colour: Colour, store: RedisToolResultStore, kind: type[StoreError]) -> list[str]:
    """Return the texts, once each operation has failed with an error of exactly that kind."""
    outcomes = colour.write_many(store, [*_ENTRIES, StoreEntry("large", "x" * 5_000_000)])
    assert {type(outcome) for outcome in outcomes} == {kind}
    texts = [str(outcomes[0])]
    store.close()  # what is known about the server is known to the open client
    for operation in (
        lambda: colour.warm_up(store),
        lambda: colour.read(store, store.reference("key-0")),
        lambda: colour.delete(store, store.reference("key-0")),
        lambda: colour.delete_scope(store),
    ):
        with pytest.raises(kind) as caught:
            operation()
        assert type(caught.value) is kind
        texts.append(str(caught.value))
    store.close()
    return texts


def test_rows_9_and_12_an_absent_server_is_unavailable(colour: Colour) -> None:
    store = RedisToolResultStore(f"redis://127.0.0.1:{free_port()}", retries=1)
    texts = _assert_each_operation_raises(colour, store, StoreUnavailableError)
    assert all("cannot be reached" in text for text in texts)


def test_a_host_that_does_not_exist_is_unavailable(colour: Colour) -> None:
    _assert_each_operation_raises(colour, RedisToolResultStore("redis://no.invalid", retries=0), StoreUnavailableError)


@pytest.mark.parametrize("kind", [VALKEY, REDIS])
def test_rows_9_and_13_a_server_that_hangs_is_a_timeout_and_serves_again(
    kind: str, colour: Colour, prefix: str
) -> None:
    with redis_server(kind) as server:
        store = RedisToolResultStore(server.url, prefix=prefix, timeout=0.1, connect_timeout=0.1, retries=5)
        colour.write_many(store, _ENTRIES)
        server.process.send(signal.SIGSTOP)
        try:
            _assert_each_operation_raises(colour, store, StoreTimeoutError)
        finally:
            server.process.send(signal.SIGCONT)
        until(lambda: colour.read(store, store.reference("key-7")) == "content 7")
        store.close()


def test_row_9_a_long_batch_waits_for_a_hung_server_once(colour: Colour, prefix: str) -> None:
    entries = [StoreEntry(f"key-{number}", "x" * 50_000) for number in range(1_000)]
    with redis_server(VALKEY) as server, proxy_to(server.port) as proxy:
        store = RedisToolResultStore(f"redis://127.0.0.1:{proxy.port}", prefix=prefix, timeout=0.2, retries=5)
        server.process.send(signal.SIGSTOP)
        try:
            assert {type(outcome) for outcome in colour.write_many(store, entries)} == {StoreTimeoutError}
        finally:
            server.process.send(signal.SIGCONT)
        # Each timeout ends its connection: one to ask what the server can do and one to write, for each part in flight.
        assert proxy.accepted <= (4 if colour.is_async else 2)
        store.close()


def test_row_9_a_timeout_is_tried_again_once(colour: Colour, prefix: str) -> None:
    with redis_server(VALKEY) as server, proxy_to(server.port) as proxy:
        store = RedisToolResultStore(f"redis://127.0.0.1:{proxy.port}", prefix=prefix, timeout=0.1, retries=5)
        server.process.send(signal.SIGSTOP)
        try:
            with pytest.raises(StoreTimeoutError):
                colour.read(store, store.reference("a"))
        finally:
            server.process.send(signal.SIGCONT)
        assert proxy.accepted == 2
        store.close()


@pytest.mark.parametrize("kind", [VALKEY, REDIS])
def test_row_8_a_server_that_was_killed_serves_again_after_its_restart(kind: str, colour: Colour, prefix: str) -> None:
    with redis_server(kind) as server:
        store = RedisToolResultStore(server.url, prefix=prefix, retries=1)
        colour.write_many(store, _ENTRIES)
        server.process.kill()
        _assert_each_operation_raises(colour, store, StoreUnavailableError)
        server.process.start()
        with pytest.raises(ReferenceNotFoundError):
            colour.read(store, store.reference("key-0"))
        assert all(isinstance(outcome, str) for outcome in colour.write_many(store, _ENTRIES))
        assert colour.read(store, store.reference("key-0")) == "content 0"
        store.close()


@pytest.mark.anyio
async def test_rows_8_and_11_connections_that_the_server_cut_are_replaced_unnoticed(
    valkey: RedisServer, prefix: str
) -> None:
    async with RedisToolResultStore(valkey.url, prefix=prefix, ttl=60) as store:
        for _ in range(3):
            await asyncio.gather(*(store.write_async(key=entry.key, content=entry.content) for entry in _ENTRIES))
            await run_in_worker(_cut_all, valkey)
            reads = (store.read_async(store.reference(entry.key)) for entry in _ENTRIES)
            assert await asyncio.gather(*reads) == [entry.content for entry in _ENTRIES]


def _cut_all(server: RedisServer) -> None:
    server.client.execute_command("CLIENT KILL", "TYPE", "normal", "SKIPME", "yes")


def test_row_11_synchronous_connections_that_the_server_cut_are_replaced_unnoticed(
    valkey: RedisServer, prefix: str
) -> None:
    with RedisToolResultStore(valkey.url, prefix=prefix, ttl=60) as store:
        reference = store.write(key="a", content="b")
        for _ in range(3):
            _cut_all(valkey)
            assert store.read(reference) == "b"
            _cut_all(valkey)
            assert store.write_many(_ENTRIES)[7] == store.reference("key-7")


def test_row_8_a_batch_in_the_middle_of_an_outage_is_carried_on(
    valkey: RedisServer, prefix: str, colour: Colour
) -> None:
    entries = [StoreEntry(f"key-{number}", "x" * 100_000) for number in range(300)]
    with proxy_to(valkey.port) as proxy, ThreadPoolExecutor(1) as pool:
        store = RedisToolResultStore(f"redis://127.0.0.1:{proxy.port}", prefix=prefix, retries=10)
        writing = pool.submit(colour.write_many, store, entries)
        _restart(proxy)
        assert writing.result() == [store.reference(entry.key) for entry in entries]
        assert store.delete_scope().entries == 300
        store.close()


def _restart(proxy: Proxy) -> None:
    until(lambda: proxy.accepted)
    proxy.cut()
    proxy.restore()


def test_row_14_a_replica_refuses_writes_and_can_be_read(valkey: RedisServer, prefix: str, colour: Colour) -> None:
    with (
        redis_server(VALKEY, "--repl-diskless-sync-delay", "0") as primary,
        redis_server(VALKEY, "--replicaof", f"127.0.0.1 {primary.port}") as replica,
        RedisToolResultStore(primary.url, prefix=prefix, ttl=60) as original,
        RedisToolResultStore(replica.url, prefix=prefix, ttl=60, retries=1) as store,
    ):
        reference = original.write(key="a", content="b")
        until(lambda: replica.client.exists(f"{prefix}:a"))
        outcomes = colour.write_many(store, _ENTRIES)
        assert {type(outcome) for outcome in outcomes} == {StoreUnavailableError}
        assert "read-only" in str(outcomes[0])
        assert colour.read(store, reference) == "b"
        with pytest.raises(StoreUnavailableError, match="read-only"):
            colour.delete(store, reference)


def test_row_14_a_primary_that_was_demoted_is_found_again(prefix: str, colour: Colour) -> None:
    with redis_server(VALKEY) as old, redis_server(VALKEY) as new, proxy_to(old.port) as proxy:
        store = RedisToolResultStore(f"redis://127.0.0.1:{proxy.port}", prefix=prefix)
        colour.write_many(store, _ENTRIES)
        old.client.replicaof("127.0.0.1", new.port)
        until(lambda: old.client.info("replication")["role"] == "slave")
        proxy.target = new.port  # as when the name of the service points elsewhere
        assert all(isinstance(outcome, str) for outcome in colour.write_many(store, _ENTRIES))
        assert new.client.exists(f"{prefix}:key-0")
        store.close()


@pytest.mark.parametrize(
    ("reply", "kind", "text"),
    [
        (b"-LOADING Redis is loading the dataset in memory\r\n", StoreUnavailableError, "loading"),
        (b"-MISCONF Redis is configured to save RDB snapshots\r\n", StoreUnavailableError, "save"),
        (b"-ERR max number of clients reached\r\n", StoreUnavailableError, "reached"),
        (b"-MASTERDOWN Link with MASTER is down\r\n", StoreUnavailableError, "does not serve"),
        (b"-CLUSTERDOWN Hash slot not served\r\n", StoreUnavailableError, "does not serve"),
        (b"-BUSY Redis is busy running a script\r\n", StoreUnavailableError, "script"),
        (b"-DENIED Redis is running in protected mode\r\n", StoreConfigurationError, "protected"),
        (b"-ERR Protocol error: invalid bulk length\r\n", EntryTooLargeError, "proto-max-bulk-len"),
        (b"-MOVED 1 127.0.0.1:1\r\n", StoreConfigurationError, "cluster=True"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", StoreConfigurationError, "protocol"),
    ],
)
def test_row_16_what_a_server_in_trouble_says_becomes_the_right_error(
    reply: bytes, kind: type[StoreError], text: str, colour: Colour
) -> None:
    with scripted_server(reply * 1_000) as port:
        store = RedisToolResultStore(f"redis://127.0.0.1:{port}", retries=1, timeout=0.5)
        (outcome,) = colour.write_many(store, [StoreEntry("a", "secret content")])
        assert type(outcome) is kind
        assert text in str(outcome)
        with pytest.raises(kind, match=text) as caught:
            colour.read(store, store.reference("a"))
        assert type(caught.value) is kind
        store.close()


def test_row_16_a_server_that_is_loading_is_waited_for(prefix: str, colour: Colour) -> None:
    with (
        redis_server(VALKEY) as server,
        scripted_server(b"-LOADING Redis is loading\r\n" * 10) as loading,
        proxy_to(loading) as proxy,
    ):
        store = RedisToolResultStore(f"redis://127.0.0.1:{proxy.port}", prefix=prefix, retries=10)
        proxy.then(server.port, connections=3)
        assert colour.write_many(store, _ENTRIES)[0] == store.reference("key-0")
        store.close()


@pytest.mark.parametrize("credentials", ["", ":wrong@", "nobody:wrong@"])
@pytest.mark.parametrize("kind", [VALKEY, REDIS])
def test_wrong_credentials_are_a_matter_of_configuration(kind: str, credentials: str, colour: Colour) -> None:
    with redis_server(kind, password="right-password") as server:
        store = RedisToolResultStore(server.url.replace("//", f"//{credentials}"), retries=5)
        texts = _assert_each_operation_raises(colour, store, StoreConfigurationError)
        assert all("credentials" in text and "wrong" not in text for text in texts)
        rejected = server.client.info("stats").get("acl_access_denied_auth", 0)
        assert rejected <= 12  # not once for each attempt that would have been pointless
        right = RedisToolResultStore(server.url, password=Secret.from_token("right-password"))
        assert colour.write_many(right, _ENTRIES)[0] == right.reference("key-0")
        right.close()


@pytest.mark.parametrize("command", ["SET", "SETRANGE"])
def test_no_error_shows_the_content_of_an_entry(prefix: str, colour: Colour, command: str) -> None:
    with redis_server(REDIS, "--rename-command", command, "") as server:
        store = RedisToolResultStore(server.url, prefix=prefix, ttl=60)
        entries = [
            StoreEntry("a", "secret" * (1 if command == "SET" else 1_000_000)),
            StoreEntry("b", "secret" * 10**6),
        ]
        outcomes = colour.write_many(store, entries)
        for outcome in outcomes:
            assert type(outcome) is StoreConfigurationError
            assert "secret" not in "".join(traceback.format_exception(outcome))
        store.close()


def test_a_user_without_permission_is_a_matter_of_configuration(
    valkey: RedisServer, prefix: str, colour: Colour
) -> None:
    valkey.client.execute_command("ACL SETUSER", prefix, "on", ">secret", "~elsewhere:*", "+@all")
    store = RedisToolResultStore(valkey.url.replace("//", f"//{prefix}:secret@"), prefix=prefix)
    assert {type(outcome) for outcome in colour.write_many(store, _ENTRIES)} == {StoreConfigurationError}
    with pytest.raises(StoreConfigurationError, match="permission"):
        colour.read(store, store.reference("a"))
    store.close()
    valkey.client.execute_command("ACL DELUSER", prefix)


@pytest.mark.parametrize("value", [["a"], b"", b"short", b"hb1t" + bytes(60), b"\xff" * 100])
def test_something_else_under_the_key_is_damage_and_can_be_replaced(
    valkey: RedisServer, prefix: str, colour: Colour, value: bytes | list[str]
) -> None:
    with RedisToolResultStore(valkey.url, prefix=prefix, ttl=60) as store:
        key = f"{prefix}:a"
        valkey.client.rpush(key, *value) if isinstance(value, list) else valkey.client.set(key, value)
        for read in (
            lambda: colour.read(store, store.reference("a")),
            lambda: store.read_page("redis:" + prefix + "/a", limit=5),
        ):
            with pytest.raises(CorruptEntryError if value else ReferenceNotFoundError):
                read()
        assert colour.write_many(store, [StoreEntry("a", "b"), *_ENTRIES])[0] == store.reference("a")
        assert colour.read(store, store.reference("a")) == "b"


def test_row_2_the_record_of_another_key_is_damage(valkey: RedisServer, prefix: str, colour: Colour) -> None:
    with RedisToolResultStore(valkey.url, prefix=prefix, ttl=60) as store:
        store.write_many([StoreEntry("a", "content"), StoreEntry("b", "another")])
        valkey.client.set(f"{prefix}:b", valkey.client.get(f"{prefix}:a"))
        with pytest.raises(CorruptEntryError):
            colour.read(store, store.reference("b"))
        with pytest.raises(CorruptEntryError):
            store.read_page(store.reference("b"), limit=3)


@pytest.mark.anyio
async def test_rows_2_4_and_31_cancelled_operations_leave_no_reply_behind(valkey: RedisServer, prefix: str) -> None:
    async with RedisToolResultStore(valkey.url, prefix=prefix, ttl=60, max_connections=2) as store:
        references = await store.write_many_async(_ENTRIES)
        chance = random.Random(7)

        async def read(number: int) -> bool:
            return await store.read_async(str(references[number])) == f"content {number}"

        for _ in range(30):
            tasks = [asyncio.ensure_future(read(chance.randrange(300))) for _ in range(20)]
            for _ in range(chance.randrange(12)):
                await asyncio.sleep(0)
            for task in tasks[::2]:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(result is True or isinstance(result, asyncio.CancelledError) for result in results)
        assert all(await asyncio.gather(*map(read, range(300))))


@pytest.mark.anyio
async def test_row_31_a_cancelled_write_ends_before_the_cancellation_goes_on(valkey: RedisServer, prefix: str) -> None:
    proxy = await run_in_worker(Proxy, valkey.port)
    store = RedisToolResultStore(f"redis://127.0.0.1:{proxy.port}", prefix=prefix, ttl=60)
    await store.write_async(key="a", content="old")
    proxy.flow.clear()
    writing = asyncio.ensure_future(store.write_async(key="a", content="new"))
    for _ in range(20):
        await asyncio.sleep(0)
    writing.cancel()
    for _ in range(20):
        await asyncio.sleep(0)
    assert not writing.done()
    proxy.flow.set()
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert await store.read_async(store.reference("a")) == "new"
    assert proxy.accepted == 1  # the connection is as good as before
    await store.close_async()
    await run_in_worker(proxy.cut)


@pytest.mark.parametrize("by", Cancellation)
def test_row_31_a_cancelled_write_of_a_large_entry_leaves_nothing_behind(
    valkey: RedisServer, prefix: str, by: Cancellation
) -> None:
    store = RedisToolResultStore(valkey.url, prefix=prefix, ttl=60)
    old, new = "old " * 2_000_000, "new " * 2_000_000
    store.write(key="large", content=old)
    for step in range(1, 200, 7):
        reached = cancel_at(
            lambda: store.write_async(key="large", content=new), step=step, by=by, afterwards=store.close_async
        )
        assert store.read(store.reference("large")) in ({old, new} if reached else {new})
        until(lambda: valkey.client.keys(f"*{prefix}*") == [f"{prefix}:large".encode()])
        if not reached:
            break
        store.write(key="large", content=old)
    store.close()


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def tls_port(valkey: RedisServer, authority: trustme.CA) -> Iterator[int]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with proxy_to(valkey.port, context) as proxy:
        yield proxy.port


def test_tls_with_a_certificate_of_ones_own(
    tls_port: int, authority: trustme.CA, tmp_path: Path, prefix: str, colour: Colour
) -> None:
    file = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(file))
    store = RedisToolResultStore.from_url(f"rediss://127.0.0.1:{tls_port}?prefix={prefix}&ssl_ca_certs={file}&ttl=60")
    assert colour.write_many(store, _ENTRIES)[5] == store.reference("key-5")
    assert colour.read(store, store.reference("key-5")) == "content 5"
    store.close()


def test_what_a_server_sends_after_the_handshake_is_not_taken_for_a_reply(
    tls_port: int, authority: trustme.CA, tmp_path: Path, prefix: str
) -> None:
    file = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(file))
    url = f"rediss://127.0.0.1:{tls_port}?prefix={prefix}&ssl_ca_certs={file}&retries=0"
    for _ in range(20):
        with RedisToolResultStore.from_url(url) as store:
            assert store.write(key="a", content="content") == store.reference("a")


def test_row_34_a_certificate_that_cannot_be_verified_is_a_matter_of_configuration(
    tls_port: int, tmp_path: Path, colour: Colour
) -> None:
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(str(other))
    for file in (None, str(other)):
        store = RedisToolResultStore(f"rediss://127.0.0.1:{tls_port}", retries=5, ssl_ca_certs=file)
        texts = _assert_each_operation_raises(colour, store, StoreConfigurationError)
        assert all("certificate" in text for text in texts)


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_file_of_certificates_that_cannot_be_read_is_a_matter_of_configuration(
    tls_port: int, tmp_path: Path, colour: Colour, content: str | None
) -> None:
    file = tmp_path / "ca.pem"
    if content:
        file.write_text(content)
    store = RedisToolResultStore(f"rediss://127.0.0.1:{tls_port}", retries=5, ssl_ca_certs=str(file))
    texts = _assert_each_operation_raises(colour, store, StoreConfigurationError)
    assert all("certificates" in text for text in texts)


def test_a_unix_socket(prefix: str, tmp_path: Path, colour: Colour) -> None:
    path = Path("/tmp") / f"{prefix}.sock"
    with redis_server(REDIS, "--unixsocket", str(path)):
        store = RedisToolResultStore.from_url(f"unix://{path}?db=3&prefix={prefix}")
        assert colour.write_many(store, _ENTRIES)[5] == store.reference("key-5")
        assert colour.read(store, store.reference("key-5")) == "content 5"
        store.close()
    _assert_each_operation_raises(colour, RedisToolResultStore(f"unix://{path}", retries=0), StoreUnavailableError)
    path.unlink(missing_ok=True)
