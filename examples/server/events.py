"""What a client hears of a run: server-sent events, the last of which says how it ended."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from haystack.dataclasses import StreamingChunk

# A comment, which clients ignore. It keeps proxies from cutting a stream off while a tool or a model takes its time.
PING = b": ping\n\n"


@dataclass(frozen=True, slots=True)
class Event:
    """
    One event.

    :param name: "run" (the first), "text", "tool", and "done" or "error" (the last).
    :param data: Its fields, as JSON takes them.
    """

    name: str
    data: Mapping[str, Any]

    def encode(self) -> bytes:
        """Return the event as it goes over the wire. JSON has no line breaks, so it is one line of data."""
        return f"event: {self.name}\ndata: {json.dumps(self.data)}\n\n".encode()


def run_begins(run: str) -> Event:
    """Return the first event."""
    return Event("run", {"id": run})


def run_is_done(result: Mapping[str, Any]) -> Event:
    """Return the last event of a run that gave an answer, from what the Agent returned."""
    offloaded = sum("tool_result_offloaded" in message.meta for message in result["messages"])
    return Event("done", {"exit_reason": result["exit_reason"], "steps": result["step_count"], "offloaded": offloaded})


def run_ended_by(reason: str) -> Event:
    """Return the last event of a run that gave no answer. The reason is for strangers: no detail of the server."""
    return Event("error", {"reason": reason})


def events_of(chunk: StreamingChunk) -> Iterator[Event]:
    """
    Yield what a client hears of a chunk of the Agent's stream.

    :param chunk: A part of a reply, or a tool's result; the latter stays between the Agent and its store.
    """
    if chunk.content:
        yield Event("text", {"text": chunk.content})
    for call in chunk.tool_calls or ():
        if call.tool_name:  # only the first piece of a call has it
            yield Event("tool", {"name": call.tool_name})
