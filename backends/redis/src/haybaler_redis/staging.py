"""
Writing one large entry: piece by piece under a key of its own, which then takes the place of the entry in one step.

Sent in one command, 100 MB would keep the event loop busy for a quarter of a second, need a timeout of its own, and
hold the server as long.
"""

import re
from collections.abc import Iterator, Sequence
from functools import partial
from secrets import token_hex
from typing import Any

from redis.exceptions import ConnectionError as LostConnectionError

from haybaler.effects import Effect, Steps, await_effect
from haybaler.errors import StoreError
from haybaler.workers import clean_up
from haybaler_redis.attempts import carried_out, repeated
from haybaler_redis.clients import Clients
from haybaler_redis.commands import (
    FLUSH_COMMANDS,
    Command,
    expire,
    rename,
    set_if_absent,
    set_range,
    split_flushes,
    unlink,
)
from haybaler_redis.exchange import exchange
from haybaler_redis.failures import mapped

# What an interrupted write leaves is removed by the server after this time, in milliseconds.
STAGE_TTL = 30 * 60 * 1000
# Seconds for the removal of what was staged, also while the write is being cancelled.
CLEAN_UP_SECONDS = 2.0

_HASH_TAG = re.compile(rb"\{[^{}]+\}")


def staged(
    clients: Clients, key: bytes, record: Sequence[bytes], ttl: int | None, retries: int
) -> Steps[StoreError | None]:
    """
    Write one record in several round trips; whoever reads sees the old entry until the new one is whole.

    :param clients: The clients.
    :param key: The key.
    :param record: The record, in pieces that can be sent at once.
    :param ttl: Milliseconds that the entry lives, or None.
    :param retries: The most times to begin anew, if the connection is lost.
    :returns: None, or why it was not written.
    """
    try:
        yield from repeated(clients, partial(_stage_and_publish, clients, key, record, ttl, retries), retries=retries)
    except Exception as error:  # noqa: BLE001 - the outcome of this entry
        return mapped(error, action="write an entry")
    return None


def stage_key(key: bytes, token: str) -> bytes:
    """
    Return the key under which a record waits: in the same slot of a cluster, and never one of an entry.

    :param key: The key of the entry.
    :param token: What makes it unique.
    :returns: The key.
    """
    tagged = key if _HASH_TAG.search(key) else b"{" + key + b"}"
    return tagged + b"#" + token.encode()


def _stage_and_publish(
    clients: Clients, key: bytes, record: Sequence[bytes], ttl: int | None, retries: int
) -> Steps[None]:
    # A fresh name each time: what an earlier attempt may still send ends up elsewhere.
    stage = stage_key(key, token_hex(8))
    pieces = list(_pieces(record))
    total = pieces[-1][0] + len(pieces[-1][1])
    # The end comes first: then the value has its full length all the time, and where the server forgets it in the
    # middle, in a failover, the next reply tells.
    last = set_range(stage, *pieces[-1])
    # Before every part: so none of them, however late it arrives, makes a key without a time to live.
    begun = set_if_absent(stage, (b"", b""), STAGE_TTL)
    try:
        yield from _sent(clients, [begun, last], retries)
        for part in split_flushes([len(piece) for _, piece in pieces[:-1]], most=FLUSH_COMMANDS):
            commands = [set_range(stage, *piece) for piece in pieces[part]]
            _, *lengths = yield from _sent(clients, [begun, *commands], retries)
            _check(lengths, total)
        yield from _sent(clients, [expire(stage, ttl), rename(stage, key)], 0)
    except BaseException:
        yield from await_effect(_clean_up(clients, stage))
        raise


def _sent(clients: Clients, commands: Sequence[Command], retries: int) -> Steps[list[Any]]:
    replies = yield from carried_out(clients, commands, retries=retries, writes=True)
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply
    return replies


def _check(lengths: Sequence[int], total: int) -> None:
    if any(length != total for length in lengths):
        raise LostConnectionError("The server has forgotten what was staged.")


def _clean_up(clients: Clients, stage: bytes) -> Effect[object]:
    removal = clients.request(partial(exchange, [unlink([stage])]))
    return Effect(removal.run, lambda: clean_up(removal.run_async, seconds=CLEAN_UP_SECONDS))


def _pieces(record: Sequence[bytes]) -> Iterator[tuple[int, bytes]]:
    position = 0
    for piece in record:
        yield position, piece
        position += len(piece)
