"""What a model is told about the two tools: names, descriptions and JSON schemas."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from haybaler.effects import Steps
from haybaler.readback.paging import Answer
from haybaler.readback.reading import DEFAULT_CONTEXT, MAX_CONTEXT, ReadBackLimits, read_steps, search_steps
from haybaler.readback.searching import MAX_PATTERN_CHARS, WINDOW_CHARS

_REFERENCE = {
    "type": "string",
    "description": "Where the result is stored, exactly as written in the message that replaced it.",
}


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """
    One of the tools.

    :param name: Its name.
    :param description: What it does, for the model.
    :param parameters: Gives the JSON schema of its arguments.
    :param steps: What it does: from a store, the model's arguments and the limits to an answer.
    """

    name: str
    description: str
    parameters: Callable[[ReadBackLimits], dict[str, Any]]
    steps: Callable[[Any, Mapping[str, Any], ReadBackLimits], Steps[Answer]]


def _read_parameters(limits: ReadBackLimits) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            "reference": _REFERENCE,
            "offset": {
                "type": "integer",
                "description": "Where the page begins, in characters. Negative counts from the end: -2000 gives the "
                "last 2000 characters. Default 0.",
            },
            "limit": {
                "type": "integer",
                "minimum": 1,
                "maximum": limits.page_chars,
                "description": f"How many characters to read. Default {limits.page_chars}, which is also the most.",
            },
        },
        "required": ["reference"],
    }


def _search_parameters(limits: ReadBackLimits) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            "reference": _REFERENCE,
            "pattern": {
                "type": "string",
                "minLength": 1,
                "maxLength": MAX_PATTERN_CHARS,
                "description": "The text to find, taken literally unless `regex` is true.",
            },
            "regex": {
                "type": "boolean",
                "description": "Whether `pattern` is a regular expression (Python syntax; ^ and $ match at line ends; "
                f"a match of more than {WINDOW_CHARS} characters may be missed). Default false.",
            },
            "case_sensitive": {
                "type": "boolean",
                "description": "Whether upper and lower case differ. Default true.",
            },
            "context": {
                "type": "integer",
                "minimum": 0,
                "maximum": MAX_CONTEXT,
                "description": f"How many characters to show before and after each match. Default {DEFAULT_CONTEXT}.",
            },
            "max_matches": {
                "type": "integer",
                "minimum": 1,
                "maximum": limits.max_matches,
                "description": f"How many matches to show. Default {limits.max_matches}, which is also the most.",
            },
            "offset": {
                "type": "integer",
                "description": "Where to begin, in characters; negative counts from the end. Default 0.",
            },
        },
        "required": ["reference", "pattern"],
    }


READ = ToolSpec(
    name="read_tool_result",
    description=(
        "Read a stored tool result back, one page at a time. The first line of the answer tells the position of the "
        "page, the total size and the offset of the next page. An image or file comes back whole."
    ),
    parameters=_read_parameters,
    steps=read_steps,
)
SEARCH = ToolSpec(
    name="search_tool_result",
    description=(
        "Find a text in a stored tool result without reading all of it. Each match comes with its surroundings, "
        "between \u27e6 and \u27e7, and with the offset at which read_tool_result can read on."
    ),
    parameters=_search_parameters,
    steps=search_steps,
)
SPECS = {spec.name: spec for spec in (READ, SEARCH)}
