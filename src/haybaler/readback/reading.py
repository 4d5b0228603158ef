"""What the two tools do: take a model's arguments apart, read from any store, and answer."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from haybaler.effects import Steps, await_effect, in_worker
from haybaler.errors import ConfigurationError, CorruptEntryError, ToolArgumentError
from haybaler.interop import method
from haybaler.readback.arguments import Arguments, quoted
from haybaler.readback.findings import SearchRequest
from haybaler.readback.paging import Answer, binary_answer, page_answer
from haybaler.readback.searching import MAX_PATTERN_CHARS
from haybaler.stores.driver import Content, page_of
from haybaler.stores.protocol import StorePage

READ_ARGUMENTS = ("reference", "offset", "limit")
SEARCH_ARGUMENTS = ("reference", "pattern", "regex", "case_sensitive", "context", "max_matches", "offset")
DEFAULT_CONTEXT = 80
MAX_CONTEXT = 500

# The longest path that Linux takes; haybaler's own references are much shorter.
_MAX_REFERENCE = 4096


@dataclass(frozen=True, slots=True)
class ReadBackLimits:
    """
    How much of an entry one call may bring into the conversation.

    :param page_chars: Characters of one page, and of all matches of one search.
    :param max_matches: Matches of one search.
    :param max_file_bytes: Bytes of an image or file.
    :raises ConfigurationError: If one of them is not a positive whole number.
    """

    page_chars: int
    max_matches: int
    max_file_bytes: int

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ConfigurationError(f"`{name}` must be a positive whole number, not {value!r}.")


def read_steps(store: Any, given: Mapping[str, Any], limits: ReadBackLimits) -> Steps[Answer]:
    """
    Read one page of a text, or an image or file as a whole.

    :param store: Any store.
    :param given: The model's arguments, `READ_ARGUMENTS`.
    :param limits: How much to read.
    :returns: Steps that end in the answer.
    :raises ToolArgumentError: If the arguments cannot be used, or the file is too large.
    """
    arguments = Arguments(given, READ_ARGUMENTS)
    reference = arguments.text("reference", longest=_MAX_REFERENCE)
    offset = arguments.number("offset", 0)
    limit = arguments.number("limit", limits.page_chars, lowest=1, highest=limits.page_chars)
    page = yield from _page(store, reference, offset, limit)
    if isinstance(page.content, str):
        return page_answer(page)
    if page.total > limits.max_file_bytes:
        raise ToolArgumentError(
            f"{quoted(reference)} holds a file of {page.total} bytes; no more than {limits.max_file_bytes} "
            "can be shown here."
        )
    content = yield from _whole(store, reference)
    if isinstance(content, str):  # replaced since its page was read
        return page_answer(page_of(content, offset, limit))
    return (yield from in_worker(binary_answer, content, reference))


def search_steps(store: Any, given: Mapping[str, Any], limits: ReadBackLimits) -> Steps[Answer]:
    """
    Find a pattern in a text.

    :param store: Any store.
    :param given: The model's arguments, `SEARCH_ARGUMENTS`.
    :param limits: How much to show.
    :returns: Steps that end in the answer.
    :raises ToolArgumentError: If the arguments cannot be used, or the entry is not a text.
    """
    arguments = Arguments(given, SEARCH_ARGUMENTS)
    reference = arguments.text("reference", longest=_MAX_REFERENCE)
    request = SearchRequest(
        pattern=arguments.text("pattern", longest=MAX_PATTERN_CHARS),
        is_regex=arguments.flag("regex", default=False),
        case_sensitive=arguments.flag("case_sensitive", default=True),
        context=arguments.number("context", DEFAULT_CONTEXT, lowest=0, highest=MAX_CONTEXT),
        most=arguments.number("max_matches", limits.max_matches, lowest=1, highest=limits.max_matches),
        offset=arguments.number("offset", 0),
        budget=limits.page_chars,
    )
    content = yield from _whole(store, reference)
    if isinstance(content, bytes):
        raise ToolArgumentError(
            f"{quoted(reference)} holds {len(content)} bytes of an image or file, which cannot be searched. "
            "Use read_tool_result."
        )
    return (yield from in_worker(request.answer, content))


def _page(store: Any, reference: str, offset: int, limit: int) -> Steps[StorePage]:
    if callable(getattr(store, "read_page", None)):
        page = yield from await_effect(method(store, "read_page", reference, offset=offset, limit=limit))
        return StorePage(_checked(page.content), page.offset, page.total)
    return page_of((yield from _whole(store, reference)), offset, limit)


def _whole(store: Any, reference: str) -> Steps[Content]:
    return _checked((yield from await_effect(method(store, "read", reference))))


def _checked(content: object) -> Content:
    if not isinstance(content, (str, bytes)):
        raise CorruptEntryError(f"The store returned {type(content).__name__}, neither text nor bytes.")
    return content
