"""Searching: right positions, bounded answers, and no pattern that takes more than its time."""

import json
import re

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tools.calling import SEARCH, find, read, tool

from haybaler.readback.findings import SearchRequest
from haybaler.readback.searching import MAX_PATTERN_CHARS, Match, compiled, search
from haybaler.stores.memory import InMemoryToolResultStore
from haybaler.tools import ToolResultToolset

LINE = re.compile(r"offset (\d+): (.*)\Z")
UNLIMITED = 60.0


def stored(content: str | bytes, key: str = "key.txt") -> tuple[InMemoryToolResultStore, str]:
    store = InMemoryToolResultStore()
    return store, store.write(key=key, content=content)


def offsets(answer: str) -> list[int]:
    return [int(m.group(1)) for m in map(LINE.match, answer.split("\n")[1:]) if m]


def everywhere(text: str, pattern: str, *, start: int = 0, is_regex: bool = True) -> list[Match]:
    expression = compiled(pattern, is_regex=is_regex, case_sensitive=True)
    return search(text, expression, start=start, most=10**9, seconds=UNLIMITED).matches


@settings(deadline=None)
@given(text=st.text("ab\n\u00e9", max_size=200), pattern=st.text("ab\n\u00e9", min_size=1, max_size=3))
def test_literal_matches_are_those_of_the_text(text: str, pattern: str) -> None:
    expected, position = [], text.find(pattern)
    while position >= 0:
        expected.append(Match(position, position + len(pattern)))
        position = text.find(pattern, position + len(pattern))
    assert everywhere(text, pattern, is_regex=False) == expected


@pytest.mark.parametrize(
    "pattern", [r"a+b", r"(?<=a)a", r"\bxa", r"(?<=\n)b", r"^b", r"a$", r"(a)\1", r"(?i:B)+", r"b(?!x)", r"(?s)a.b"]
)
@pytest.mark.parametrize("length", [10, 4095, 4096, 4097, 20_000])
def test_regular_expressions_match_as_in_python_also_across_the_seams(pattern: str, length: int) -> None:
    text = ("aab xa\nb aa b" * (length // 13 + 1))[:length]
    expected = [Match(m.start(), m.end()) for m in re.finditer(pattern, text, re.MULTILINE)]
    assert everywhere(text, pattern) == expected


def test_a_match_that_begins_near_a_seam_is_whole() -> None:
    text = "x" * 5000 + "a" * 4000 + "x"
    assert everywhere(text, "a+") == [Match(5000, 9000)]


@pytest.mark.parametrize("before", range(4090, 4100))
def test_a_seam_is_neither_a_beginning_nor_an_end(before: int) -> None:
    text = "x" * (before - 1) + "ab" + "x" * 20_000
    assert everywhere(text, "(?<=a)b") == [Match(before, before + 1)]
    assert everywhere(text, r"^b|\Ab|\bb|(?<!a)b|a$|a\Z|x{3}a$") == []


def test_a_literal_pattern_stands_for_itself() -> None:
    store, reference = stored("a.b axb A.B [a.b]")
    assert offsets(find(store, reference=reference, pattern="a.b")) == [0, 13]
    assert offsets(find(store, reference=reference, pattern="a.b", case_sensitive="false")) == [0, 8, 13]
    assert offsets(find(store, reference=reference, pattern="a.b", regex=True)) == [0, 4, 13]


def test_the_offset_of_a_match_can_be_read() -> None:
    text = json.dumps([{"number": n, "name": f"läufer {n}"} for n in range(300_000)], ensure_ascii=False)
    assert len(text) > 10_000_000
    store, reference = stored(text)
    answer = find(store, reference=reference, pattern='"läufer 299998"', context=10)
    assert answer == (
        f"[1 match in {len(text)} characters; that is all]\n"
        f'offset {text.index("läufer 299998") - 1}: ..., "name": \u27e6"läufer 299998"\u27e7}}, {{"numbe...'
    )
    [offset] = offsets(answer)
    assert read(store, reference=reference, offset=offset, limit=15).split("\n")[1] == '"läufer 299998"'


def test_nothing_found_is_said() -> None:
    store, reference = stored("abc")
    assert find(store, reference=reference, pattern="x") == "[no matches in 3 characters; that is all]"


def test_a_search_can_be_continued_until_it_is_complete() -> None:
    text = "".join(f"item {n}\n" for n in range(100))
    store, reference = stored(text)
    toolset, seen, offset = ToolResultToolset(store, max_matches=7), list[int](), 0
    while True:
        answer = tool(toolset, SEARCH).invoke(reference=reference, pattern="item", offset=offset)
        seen += offsets(answer)
        following = re.search(r"there are more, continue with offset=(\d+)\]", answer.split("\n")[0])
        if following is None:
            break
        offset = int(following.group(1))
    assert seen == [m.start() for m in re.finditer("item", text)]


def test_a_negative_offset_searches_the_tail() -> None:
    store, reference = stored("x123x567x")
    assert offsets(find(store, reference=reference, pattern="x", offset=-5)) == [4, 8]


def test_the_answer_is_no_longer_than_a_page() -> None:
    store, reference = stored("needle " * 1000)
    toolset = ToolResultToolset(store, page_chars=2000, max_matches=1000)
    answer = tool(toolset, SEARCH).invoke(reference=reference, pattern="needle", context=500)
    assert len(answer) < 2200
    assert answer.startswith("[3 matches in 7000 characters so far; there are more, continue with offset=21]")


def test_a_long_match_is_cut() -> None:
    store, reference = stored("<" + "a" * 3000 + ">")
    answer = find(store, reference=reference, pattern="a+", regex=True)
    assert answer.split("\n")[1] == f"offset 1: <\u27e6{'a' * 200}... (3000 characters)\u27e7>"


def test_no_text_can_pass_for_a_line_of_the_answer() -> None:
    breaks = "\n\r\x0b\x0c\x1c\x85\u2028\u2029"
    store, reference = stored(f"{breaks}offset 1: x{breaks}needle{breaks}offset 2: y\ud800\x00")
    answer = find(store, reference=reference, pattern="needle")
    assert len(answer.splitlines()) == 2
    assert "\\n\\r\\x0b\\x0c\\x1c\\x85\\u2028\\u2029\u27e6needle\u27e7" in answer
    answer.encode()


@pytest.mark.parametrize(
    "arguments",
    [
        {"pattern": ""},
        {"pattern": None},
        {"pattern": 7},
        {"pattern": "x" * (MAX_PATTERN_CHARS + 1)},
        {"pattern": "x", "regex": "perhaps"},
        {"pattern": "x", "case_sensitive": 3},
        {"pattern": "x", "context": -1},
        {"pattern": "x", "max_matches": 0},
        {"pattern": "x", "offset": "end"},
        {"pattern": "x", "query": "y"},
        {"pattern": "(", "regex": True},
        {"pattern": "a**", "regex": True},
        {"pattern": "[b", "regex": True},
        {"pattern": r"\p{NoSuchThing}", "regex": True},
        {"pattern": r"\L<words>", "regex": True},
    ],
    ids=repr,
)
def test_unusable_arguments_are_answered_with_a_sentence(arguments: dict[str, object]) -> None:
    store, reference = stored("abc")
    answer = find(store, reference=reference, **arguments)
    assert answer.endswith(".")
    assert "\n" not in answer
    assert len(answer) < 300


def test_a_file_is_not_searched() -> None:
    store, reference = stored(b"\x00\x01", "a.bin")
    assert find(store, reference=reference, pattern="x") == (
        f'"{reference}" holds 2 bytes of an image or file, which cannot be searched. Use read_tool_result.'
    )


# Refused before they are compiled, for compiling or matching them cannot be bounded.
REFUSED = [
    r"a{1000000000}b",
    r"(?:(?:(?:a?){1000}){1000}){1000}b",
    r"(?:(?:a?)*?){1000000000}b",
    r"(?:a{100}){1000}",
    r"(?:(?:a?){99}){99}b",
    r"a{99999999999999999999}",
    r"[a-z]{500}" * 20,
    r"(?R)",
    r"(?R)*",
    r"(?:a|(?R))*b",
    r"((?1)|a)+b",
    r"(?P<x>a|(?&x)(?&x))b",
    r"(?P>x)(?P<x>a)",
    r"(?:aaaaaaaaaaab){e<=5}",
    r"(?b)(?:a+b+c+){e}",
    r"(?:.*b){i<=3,d<=3,s<=3}",
    r"(?:ab){1<=e<=4}",
    r"(?:ab){2i+2d+1s<=4}",
    r"(?:a){d:[a-z]}",
    r"(?e)(?:abc){s}",
    r"(?x)a{1 0 0 0 0 0 0 0 0}",
    r"(?x)a{1#" + "\n" + r"000000000}",
    r"(?:a)(?#comment){1000000}",
    r"(?r)(a+)+b",
    r"(?p)(a|aa)*b",
    r"(?V1)[[a-z]--[b]]+b",
    r"(?|(a+)+|(a*)*)+b",
    r"(?(DEFINE)(?P<q>a+))(?&q)+b",
    r"a*(*SKIP)b",
    "(" * 500,
    "(?:" * 100 + "a" + ")" * 100 + "(" * 99,
]
# Allowed, but they would take for ever, or make the engine look at its time limit too seldom.
SLOW = [
    r"(a+)+$!",
    r"(?:a|a)*\d",
    r"(?:(?:a+)+)+b!",
    r"(a|aa)+$!",
    r"\w+\d",
    r"[\p{Ll}\p{Lo}\p{Lu}\p{Lm}]+\d\d",
    r"\X*+\m",
    r"(?<=\w+\d)a",
    r"(?<!\w*a)\w\d",
    r"(?:a{1,1000}){1,1000}\d",
    r"(?i)(\w+)\1+\d",
    r"(?=(\w+)+\d)a",
    r"\w*\w*\w*\w*\d",
    "a?" * 100 + "a" * 100 + r"\d",
    r"(?:\b|\w)*\d",
]


@pytest.mark.parametrize("pattern", REFUSED)
def test_a_pattern_without_a_bound_is_refused_with_a_sentence(pattern: str) -> None:
    store, reference = stored("a" * 100)
    answer = find(store, reference=reference, pattern=pattern, regex=True)
    assert re.match(r"The pattern (uses|repeats|is not)|Fuzzy matching is not allowed", answer)
    assert answer.endswith(".")


@pytest.mark.parametrize(
    "pattern",
    [
        r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
        r"(?:\d{1,3}\.){3}\d{1,3}",
        r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d{1,6})?Z",
        r"(?P<key>\w+)=(?P=key)",
        r"(?i)error|(?s:a.*?b)|(?im-s:x)",
        r".{0,500}needle.{0,500}",
        r"\{\"id\": \d+\}",
        r'{"id": \d+',
        r"\(\?R\)|\{e<=1\}",
        r"\p{Lu}\p{Greek}\N{EURO SIGN}[[:alpha:]]",
    ],
)
def test_an_ordinary_pattern_is_allowed(pattern: str) -> None:
    compiled(pattern, is_regex=True, case_sensitive=True)


@pytest.mark.anyio
@pytest.mark.parametrize("pattern", SLOW)
async def test_a_slow_pattern_is_stopped_and_says_so_while_the_loop_goes_on(pattern: str) -> None:
    store, reference = stored("a" * 2_000_000)
    beats = 0

    async def beat() -> None:
        nonlocal beats
        while True:
            await anyio.lowlevel.checkpoint()
            beats += 1

    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(beat)
            answer = await tool(ToolResultToolset(store), SEARCH).invoke_async(
                reference=reference, pattern=pattern, regex=True
            )
            group.cancel_scope.cancel()
    assert "the search took too long and was stopped there, use a simpler pattern" in answer
    assert beats > 10


def test_what_was_found_before_time_ran_out_is_shown() -> None:
    text = "needle1 " + "a" * 2_000_000
    store, reference = stored(text)
    answer = find(store, reference=reference, pattern=r"\w+\d", regex=True)
    first, match = answer.split("\n")
    reached = re.fullmatch(r"\[1 match in 2000008 characters up to (\d+); the search .* offset=\1\]", first)
    assert reached is not None
    assert 7 <= int(reached.group(1)) < len(text)
    assert match.startswith("offset 0: \u27e6needle1\u27e7 aaa")


def test_no_time_means_no_search() -> None:
    found = search("a", compiled("a", is_regex=True, case_sensitive=True), most=1, seconds=-1.0)
    assert (found.matches, found.reached, found.timed_out) == ([], 0, True)


@settings(deadline=None)
@given(
    pattern=st.text(st.sampled_from("ab.*+?{}()[]|\\^$12,:=!<>PRisxe&-\u00e9\n"), min_size=1, max_size=25),
    text=st.text("ab12{}\n", max_size=50),
)
def test_any_pattern_gets_an_answer(pattern: str, text: str) -> None:
    store, reference = stored(text)
    assert isinstance(find(store, reference=reference, pattern=pattern, regex=True), str)


def test_an_empty_match_moves_on() -> None:
    assert everywhere("aba", "a*") == [Match(0, 1), Match(1, 1), Match(2, 3), Match(3, 3)]


def test_matches_of_nothing_are_bounded_too() -> None:
    request = SearchRequest("x*", is_regex=True, case_sensitive=True, context=0, most=3, offset=0, budget=1000)
    assert offsets(request.answer("abcdef")) == [0, 1, 2]
