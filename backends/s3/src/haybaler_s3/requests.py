"""Single requests: each is sent once here, by the client again where that may help, and mapped by whoever asked."""

import random
import time
from typing import Any, TypeVar, TypeVarTuple

import anyio
from botocore.exceptions import ClientError

from haybaler.effects import Effect, Steps, await_effect
from haybaler.workers import unbroken
from haybaler_s3.clients import Clients
from haybaler_s3.deadlines import request_seconds
from haybaler_s3.failures import of_transport
from haybaler_s3.settings import Settings

R = TypeVar("R")
Ts = TypeVarTuple("Ts")

# Up to this size, encoding and summing up takes less than the way to a worker thread and back.
INLINE_BYTES = 128 * 1024
# Seconds before the second attempt, doubled for each further one, up to the longest.
FIRST_PAUSE = 0.05
LONGEST_PAUSE = 1.0
# Seconds for which a cancellation waits for the end of a request that changes something at once.
GRACE = 1.0
_CHANGING = frozenset({"put_object", "delete_object", "delete_objects"})

# What passes, but is left out by the client's own retries: two requests got into each other's way, or there were many.
_AGAIN = frozenset({"OperationAborted", "ConditionalRequestConflict", "TooManyRequests", "429"})
# What a server calls it that there is no such object; "404" where an answer has no body.
ABSENT = frozenset({"404", "NoSuchKey"})


class Requests:
    """
    What is asked of one bucket.

    :param settings: The bucket, and the number of attempts.
    :param clients: Where requests go.
    """

    def __init__(self, settings: Settings, clients: Clients) -> None:
        self.settings = settings
        self.clients = clients

    def once(self, operation: str, **parameters: Any) -> Effect[Any]:
        """
        Carry out one operation of the client.

        :param operation: The method's name.
        :param parameters: Its arguments, without the bucket.
        :returns: The effect; it raises what the client raises.
        """
        seconds = request_seconds(self.settings, self._size(parameters))

        def ask(client: Any) -> Any:
            return getattr(client, operation)(Bucket=self.settings.bucket, **parameters)

        def run(client: Any) -> Any:
            return self.clients.within(seconds, lambda: ask(client))

        async def run_async(client: Any) -> Any:
            with anyio.fail_after(seconds):
                request = ask(client)
                return await (unbroken(request, seconds=GRACE) if operation in _CHANGING else request)

        return self.clients.request(run, run_async)

    def _size(self, parameters: dict[str, Any]) -> int:
        # To put an upload together takes a server the longer the more there is; it may trickle meanwhile.
        parts = parameters.get("MultipartUpload", {}).get("Parts", ())
        return len(parameters.get("Body", b"")) + len(parts) * self.settings.part_bytes

    def send(self, operation: str, **parameters: Any) -> Steps[Any]:
        """
        Carry out one operation, as `repeated` does.

        :param operation: The method's name.
        :param parameters: Its arguments, without the bucket.
        :returns: Steps that end in the answer; they raise what the client raises.
        """
        return (yield from self.repeated(self.once(operation, **parameters)))

    def repeated(self, effect: Effect[R]) -> Steps[R]:
        """
        Make a request, again where another one got in its way, or the answer broke off.

        :param effect: The request.
        :returns: Steps that end in the answer; they raise what the client raises.
        """
        for attempt in range(1, self.settings.attempts):
            try:
                return (yield from await_effect(effect))
            except Exception as error:
                if not (code_of(error) in _AGAIN if isinstance(error, ClientError) else of_transport(error)):
                    raise
            yield from await_effect(pause(attempt))
        return (yield from await_effect(effect))


def code_of(error: ClientError) -> str:
    """Return what the server calls an error."""
    return str(error.response.get("Error", {}).get("Code", ""))


def pause(attempt: int) -> Effect[None]:
    """Wait before the next attempt, longer each time, and not as long as others that failed at the same moment."""
    seconds = min(FIRST_PAUSE * 2 ** (attempt - 1), LONGEST_PAUSE) * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
    return Effect(lambda: time.sleep(seconds), lambda: anyio.sleep(seconds))
