"""A response that streams a run. What ends the response ends the run: the last event, or a client that is gone."""

from asyncio import CancelledError
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress

import anyio
from starlette.background import BackgroundTask
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from examples.server.cancellation import forgive_cancellation
from examples.server.events import PING, run_begins, run_ended_by
from examples.server.service import Run, TooManyRunsError

# Seconds of silence after which a client is sent a comment.
PING_SECONDS = 15.0
# A client that has taken nothing for so long is gone, in seconds.
STALLED_SECONDS = 30.0
# How long a client is told about a shutdown, in seconds.
FAREWELL_SECONDS = 1.0


class RunResponse(Response):
    """
    Streams the events of a run.

    The task groups live in this object's call, not in an asynchronous generator: one whose consumer is cancelled while
    it writes to the client is closed later and by another task, which a task group does not survive.

    :param opened: The run, not entered yet. It begins when the response is sent.
    :param status_code: The status of a run that begins.
    """

    media_type = "text/event-stream"

    def __init__(self, opened: AbstractAsyncContextManager[Run], status_code: int = 200) -> None:
        self._opened = opened
        self._open = False
        self.status_code = status_code
        self.background: BackgroundTask | None = None
        self.init_headers({"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})  # the latter for nginx

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with self._opened as run:
                await self._stream(run, receive, send)
        except TooManyRunsError:
            busy = JSONResponse({"detail": "Too many runs at the moment."}, 503, {"Retry-After": "5"})
            await busy(scope, receive, send)
        except CancelledError:  # by the server; this task is nothing but the request, and the request is at its end
            forgive_cancellation()
        if self.background is not None:
            await self.background()

    async def _stream(self, run: Run, receive: Receive, send: Send) -> None:
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(_when_gone, receive, group.cancel_scope.cancel)
                with suppress(OSError):  # also a timeout: the client is gone
                    await self._tell(run, send)
                group.cancel_scope.cancel()
        except CancelledError:
            if self._open:
                with suppress(OSError), anyio.move_on_after(FAREWELL_SECONDS, shield=True):
                    await self._end(send, run_ended_by("shutdown").encode())
            raise

    async def _tell(self, run: Run, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        self._open = True
        await _write(send, run_begins(run.id).encode())
        with suppress(anyio.EndOfStream):
            while True:
                told = PING
                with anyio.move_on_after(PING_SECONDS):
                    told = (await run.events.receive()).encode()
                await _write(send, told)
        await self._end(send, run.last.encode())

    async def _end(self, send: Send, last: bytes) -> None:
        await _write(send, last)
        self._open = False
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _write(send: Send, body: bytes) -> None:
    with anyio.fail_after(STALLED_SECONDS):
        await send({"type": "http.response.body", "body": body, "more_body": True})


async def _when_gone(receive: Receive, then: Callable[[], object]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    then()
