"""
The model of the demo: OpenAI's if there is a key, otherwise a script that reads the conversation as a model would.

The script knows nothing but the messages it is sent. What is not in them any more, it has to read back.
"""

import os
import re
from typing import Any

from haystack.components.generators.chat import MockChatGenerator, OpenAIResponsesChatGenerator
from haystack.dataclasses import ChatMessage, ToolCall

from research.observing import Observer

SURVEY = (
    ("pickle",), ("os",), ("shutil",), ("glob", "fnmatch"), ("tempfile",), ("gzip",), ("bz2", "lzma"), ("filecmp",),
    ("fileinput",), ("tokenize",), ("shelve", "csv"), ("mailbox",), ("ntpath",), ("mimetypes",), ("posixpath",),
)  # fmt: skip
TASK = (
    "Survey how the standard library handles files. Call list_modules first. Then read these modules in this order, "
    f"one group at a time: {'; '.join(', '.join(group) for group in SURVEY)}. When you have read them all: which "
    "protocol does pickle write by default? Answer with the line of its source that sets it, and look that up again if "
    "you do not see it any more."
)

_FACT = re.compile(r"DEFAULT_PROTOCOL = (\d+)")
_POINTER = re.compile(r"^Tool result offloaded to text .* at '([^']+)'")
_OFFSET = re.compile(r"^offset (\d+): ", re.MULTILINE)


HAS_KEY = bool(os.environ.get("OPENAI_API_KEY"))
MODEL = os.environ.get("OPENAI_MODEL", "gpt-5-mini") if HAS_KEY else "a script (a real one if OPENAI_API_KEY is set)"


def chat_model(observer: Observer) -> Any:
    """Return OpenAI's model if there is a key, otherwise the script."""
    return OpenAIResponsesChatGenerator(model=MODEL) if HAS_KEY else MockChatGenerator(response_fn=Script(observer))


class Script:
    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    def __call__(self, messages: list[ChatMessage]) -> ChatMessage:
        calls = _next_calls(messages)
        text = None if calls else _answer(messages)
        return ChatMessage.from_assistant(text, tool_calls=calls, meta={"usage": self._observer.usage(text, calls)})


def _next_calls(messages: list[ChatMessage]) -> list[ToolCall]:
    read = {call.arguments["name"] for call in _calls(messages, "read_module")}
    if not _calls(messages, "list_modules"):
        return [ToolCall("list_modules", {}, id="list")]
    for group in SURVEY:
        if not read.issuperset(group):
            return [ToolCall("read_module", {"name": name}, id=f"read-{name}") for name in group]
    if _fact(messages):
        return []
    return _read_back(messages)


def _read_back(messages: list[ChatMessage]) -> list[ToolCall]:
    pointer = next(filter(None, map(_POINTER.match, _results(messages, "read_module", name="pickle"))), None)
    if pointer is None or _calls(messages, "read_tool_result"):
        return []
    found = [offset for text in _results(messages, "search_tool_result") for offset in _OFFSET.findall(text)]
    if not found:
        return [
            ToolCall("search_tool_result", {"reference": pointer[1], "pattern": "DEFAULT_PROTOCOL = "}, id="search")
        ]
    offset = max(int(found[-1]) - 200, 0)
    return [ToolCall("read_tool_result", {"reference": pointer[1], "offset": offset, "limit": 400}, id="page")]


def _answer(messages: list[ChatMessage]) -> str:
    fact = _fact(messages)
    return f"pickle writes protocol {fact[1]}: its source says `{fact[0]}`." if fact else "I do not see it any more."


def _fact(messages: list[ChatMessage]) -> re.Match[str] | None:
    texts = [*_results(messages, "read_module", name="pickle"), *_results(messages, "read_tool_result")]
    return next(filter(None, map(_FACT.search, texts)), None)


def _calls(messages: list[ChatMessage], tool: str) -> list[ToolCall]:
    return [call for message in messages for call in message.tool_calls if call.tool_name == tool]


def _results(messages: list[ChatMessage], tool: str, **arguments: str) -> list[str]:
    results = [result for message in messages for result in message.tool_call_results]
    return [
        str(result.result)
        for result in results
        if result.origin.tool_name == tool and arguments.items() <= result.origin.arguments.items()
    ]
