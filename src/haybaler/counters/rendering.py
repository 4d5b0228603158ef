"""How a message looks as text when its tokens are counted locally, piece by piece and without joining big strings."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from haystack.dataclasses import ChatMessage, FileContent, ImageContent, TextContent, ToolCall, ToolCallResult
from haystack.dataclasses.chat_message import ReasoningContent
from haystack.tools import ToolsType, flatten_tools_or_toolsets


def rendered(messages: Sequence[ChatMessage], tools: ToolsType | None = None) -> list[str]:
    """
    Render messages and tool schemas, one line or more for each message.

    :param messages: The messages, oldest first.
    :param tools: Tools whose schemas count too.
    :returns: Pieces that make up the whole when joined; long texts are pieces of their own.
    """
    pieces: list[str] = []
    for message in messages:
        for line in _lines(message):
            if pieces:
                pieces.append("\n")
            pieces += line
    if tools:
        specs = [tool.tool_spec for tool in flatten_tools_or_toolsets(tools)]
        pieces.append(json.dumps(specs, default=str, sort_keys=True))
    return pieces


def _lines(message: ChatMessage) -> list[tuple[str, ...]]:
    if results := message.tool_call_results:
        return [_answer(result) for result in results]
    role = message.role.value
    return list(_spoken(message, role)) or [(f"[{role}] <no content>",)]


def _answer(result: ToolCallResult) -> tuple[str, ...]:
    head = f"[tool:{result.origin.tool_name}{' (error)' if result.error else ''}] "
    return (head, result.result) if isinstance(result.result, str) else (head, *map(_stand_in, result.result))


def _spoken(message: ChatMessage, role: str) -> Iterator[tuple[str, ...]]:
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
        limit -= 100
        for part in message._content:  # noqa: SLF001 - each of the public views goes through all parts
            limit -= _weight(part, most=max(limit, 0))
        if limit < 0:
            return False
    return True


def _weight(part: object, *, most: int) -> int:
    match part:
        case TextContent():
            return len(part.text)
        case ToolCallResult():
            blocks = part.result
            return len(blocks) if isinstance(blocks, str) else sum(_weight(block, most=most) for block in blocks)
        case ToolCall():
            return _weight_of_arguments(part.arguments, most=most)
        case ReasoningContent():
            return len(part.reasoning_text)
        case FileContent():
            return len(part.base64_data)
    return 0


def _weight_of_arguments(arguments: object, *, most: int) -> int:
    weight = 0
    waiting = [arguments]
    while waiting and weight <= most:
        value = waiting.pop()
        weight += len(value) if isinstance(value, str) else 10
        waiting.extend(_inside(value, most=max(most - weight, 0)))
    return weight


def _results(message: ChatMessage) -> Iterator[str]:
    for result in message.tool_call_results:
        if isinstance(result.result, str):
            yield result.result
        else:
            yield from (part.text for part in result.result if isinstance(part, TextContent))


def _inside(value: object, *, most: int) -> Iterable[object]:
    if isinstance(value, Mapping):
        return (part for item in islice(value.items(), most) for part in item)
    return islice(value, most) if isinstance(value, (list, tuple)) else ()
