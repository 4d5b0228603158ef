"""When a command is tried again: after an outage, a failover or a restart, a bounded number of times, with jitter."""

import random
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TypeVar

import anyio
from redis.exceptions import ClusterError, ReadOnlyError, ResponseError

from haybaler.effects import Effect, Steps, await_effect
from haybaler.errors import StoreError
from haybaler.workers import unbroken
from haybaler_redis.clients import Clients
from haybaler_redis.commands import Command
from haybaler_redis.exchange import Reply, exchange
from haybaler_redis.failures import is_lost, is_passing, is_timeout, is_whole_cluster, mapped, presentable

R = TypeVar("R")

# Seconds before the second attempt, doubled for each further one, up to the longest.
FIRST_PAUSE = 0.05
LONGEST_PAUSE = 1.0
# Seconds before a cluster that is down for the moment is asked again, as redis-py itself would wait.
CLUSTER_PAUSE = 0.25
# Seconds for which a cancellation waits for a round trip that changes something; one of a few megabytes takes some
# milliseconds. The connection is as good as before then, too.
GRACE = 1.0


def carried_out(
    clients: Clients,
    commands: Sequence[Command],
    *,
    retries: int,
    writes: bool = False,
    optional: Collection[int] = (),
) -> Steps[list[Reply]]:
    """
    Carry out commands that may be repeated without harm.

    Those that failed for a passing reason are tried again, and only those; a timeout only once, since each one costs as
    much as the caller was ready to wait.

    :param clients: The clients.
    :param commands: The commands.
    :param retries: The most further attempts.
    :param writes: Whether they change something, so that a round trip is finished in spite of a cancellation.
    :param optional: Which commands nobody waits for, once the server has refused them and done the others.
    :returns: Reply i belongs to command i; where all attempts failed, the last exception.
    """
    replies = yield from _attempt(clients, commands, writes=writes)
    for attempt in range(retries):
        failed = [index for index, reply in enumerate(replies) if _again(reply, attempt)]
        needed = [replies[index] for index in failed if index not in optional or not _is_refusal(replies[index])]
        if not needed:
            break
        if any(isinstance(reply, ReadOnlyError) for reply in needed):
            yield from await_effect(clients.drop_idle())
        yield from await_effect(_pause(attempt, needed))
        results = yield from _attempt(clients, [commands[index] for index in failed], writes=writes)
        for index, result in zip(failed, results, strict=True):
            replies[index] = result
    return replies


def repeated(clients: Clients, action: Callable[[], Steps[R]], *, retries: int) -> Steps[R]:
    """
    Do something that raises where it fails, and try again as `carried_out` does.

    :param clients: The clients.
    :param action: Begins it anew each time.
    :param retries: The most further attempts.
    :returns: What came of it.
    """
    for attempt in range(retries):
        try:
            return (yield from action())
        except Exception as error:
            found = (yield from _looked_around(clients)) if clients.clustered and is_lost(error) else None
            if found is not None or not _again(error, attempt):
                raise
            failure = error
        yield from await_effect(_pause(attempt, [failure]))
    return (yield from action())


def answered(clients: Clients, effect: Effect[R], *, retries: int, action: str) -> Steps[R]:
    """
    Have something asked, again as `repeated` does, and raise what its failure means.

    :param clients: The clients.
    :param effect: Asks it.
    :param retries: The most further attempts.
    :param action: What is being done, as a phrase that completes "Could not ...".
    :returns: The answer.
    :raises StoreError: If all attempts failed.
    """
    try:
        return (yield from repeated(clients, lambda: await_effect(effect), retries=retries))
    except Exception as error:  # noqa: BLE001 - it is raised, mapped
        raise mapped(error, action=action) from presentable(error)


def _attempt(clients: Clients, commands: Sequence[Command], *, writes: bool) -> Steps[list[Reply]]:
    effect = clients.request(partial(exchange, commands))
    try:
        replies = yield from await_effect(_finished(effect) if writes else effect)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what came of each command
        replies = [error] * len(commands)
    if clients.clustered and any(is_lost(reply) for reply in replies):
        found = yield from _looked_around(clients)
        if found is not None:  # nor would the rest of the cluster answer now
            return [found if is_lost(reply) else reply for reply in replies]
    return replies


def _looked_around(clients: Clients) -> Steps[Exception | None]:
    # Only those whose node is lost wait for this; for the others the cluster is as it was.
    try:
        yield from await_effect(clients.look_around())
    except Exception as error:  # noqa: BLE001 - it is the caller's next reply
        return error if is_timeout(error) else None
    return None


def _finished(effect: Effect[R]) -> Effect[R]:
    return Effect(effect.run, lambda: unbroken(effect.run_async(), seconds=GRACE))


def _again(reply: Reply, attempt: int) -> bool:
    if not isinstance(reply, Exception) or isinstance(reply, StoreError):  # the latter come from the store itself
        return False
    # Who has asked all nodes of a cluster in vain has waited once for each already.
    return is_passing(reply) and not ((attempt or is_whole_cluster(reply)) and is_timeout(reply))


def _is_refusal(reply: Reply) -> bool:
    return isinstance(reply, ResponseError)  # what is lost is an error of the connection


def _pause(attempt: int, replies: Sequence[Reply]) -> Effect[None]:
    seconds = min(FIRST_PAUSE * 2**attempt, LONGEST_PAUSE) * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
    if any(isinstance(reply, ClusterError) for reply in replies):
        seconds = max(seconds, CLUSTER_PAUSE)
    return Effect(lambda: time.sleep(seconds), lambda: anyio.sleep(seconds))
