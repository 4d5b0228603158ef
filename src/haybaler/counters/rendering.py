"""How a message looks as text when its tokens are counted locally, piece by piece and without joining big strings."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from haystack.dataclasses import ChatMessage, FileContent, ImageContent, TextContent
from haystack.tools import ToolsType, flatten_tools_or_toolsets

from haybaler.parts import blocks_of


def rendered(messages: Sequence[ChatMessage], tools: ToolsType | None = None) -> Iterator[str]:
    """
    Render messages and tool schemas, one line or more for each message.

    :param messages: The messages, oldest first.
    :param tools: Tools whose schemas count too.
    :returns: Pieces that make up the whole when joined.
    """
    first = True
    for message in messages:
        for line in _lines(message):
            if not first:
                yield "\n"
            first = False
            yield from line
    if tools:
        yield json.dumps([tool.tool_spec for tool in flatten_tools_or_toolsets(tools)], default=str, sort_keys=True)


def _lines(message: ChatMessage) -> Iterator[Iterable[str]]:
    role = message.role.value
    if results := message.tool_call_results:
        for result in results:
            parts = map(_stand_in, blocks_of(result))
            yield (f"[tool:{result.origin.tool_name}{' (error)' if result.error else ''}] ", *parts)
        return
    empty = True
    for line in _spoken(message, role):
        empty = False
        yield line
    if empty:
        yield (f"[{role}] <no content>",)


def _spoken(message: ChatMessage, role: str) -> Iterator[Iterable[str]]:
    for reasoning in message.reasonings:
        yield f"[{role} thinks] ", reasoning.reasoning_text
    for index, text in enumerate(message.texts):
        yield "" if index else f"[{role}] ", text
    for call in message.tool_calls:
        arguments = json.dumps(call.arguments, default=str, sort_keys=True)
        yield f"[{role} -> tool_call] {call.tool_name}(", arguments, ")"
    others: list[ImageContent | FileContent] = [*message.images, *message.files]
    for part in others:
        yield f"[{role}] ", _stand_in(part)


def _stand_in(part: TextContent | ImageContent | FileContent) -> str:
    if isinstance(part, TextContent):
        return part.text
    return "<image>" if isinstance(part, ImageContent) else f"<file: {part.filename or 'unnamed'}>"


def words_in(message: ChatMessage) -> int:
    """
    Count the words of what is said and of what tools gave, which is the least that any tokenizer makes of them.

    No token spans two words. What providers may leave out, such as reasoning, is left out here.

    :param message: The message.
    :returns: Runs of characters between blanks.
    """
    return sum(len(text.split()) for text in (*message.texts, *_results(message)))


def is_short(messages: Sequence[ChatMessage], limit: int) -> bool:
    """
    Whether a local counter would have little to do, found out without looking at much more than that.

    :param messages: The messages.
    :param limit: Characters; a message counts as at least a hundred, a value in the arguments of a call as ten, and
        a file as its base64 form, which may have to be looked through.
    :returns: True if the text and files of the messages are within the limit.
    """
    for message in messages:
        limit -= 100 + sum(map(len, _texts(message))) + sum(len(file.base64_data) for file in _files(message))
        for call in message.tool_calls:
            waiting: list[object] = [call.arguments]
            while waiting and limit >= 0:
                value = waiting.pop()
                limit -= len(value) if isinstance(value, str) else 10
                waiting.extend(_inside(value, most=max(limit, 0)))
        if limit < 0:
            return False
    return True


def _texts(message: ChatMessage) -> Iterator[str]:
    yield from message.texts
    yield from (reasoning.reasoning_text for reasoning in message.reasonings)
    yield from _results(message)


def _results(message: ChatMessage) -> Iterator[str]:
    for result in message.tool_call_results:
        if isinstance(result.result, str):
            yield result.result
        else:
            yield from (part.text for part in result.result if isinstance(part, TextContent))


def _files(message: ChatMessage) -> Iterator[FileContent]:
    yield from message.files
    for result in message.tool_call_results:
        if not isinstance(result.result, str):
            yield from (part for part in result.result if isinstance(part, FileContent))


def _inside(value: object, *, most: int) -> Iterable[object]:
    if isinstance(value, Mapping):
        return (part for item in islice(value.items(), most) for part in item)
    return islice(value, most) if isinstance(value, (list, tuple)) else ()
