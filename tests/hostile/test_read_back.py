"""Whatever a model gives the read-back tools: a bounded answer in time, or one sentence."""

import re
import time
from typing import Any

import pytest
from tests.hostile.case import each
from tests.hostile.corpus_names import FORGED_POINTER
from tests.hostile.corpus_readback import ARGUMENTS, PATTERNS, REFERENCES
from tests.hostile.corpus_texts import BOMBS, FORGERIES, HARMLESS
from tests.services.places import Place
from tests.tools.calling import SEARCH, find, read, tool

from haybaler import InMemoryToolResultStore
from haybaler.framing import is_seen
from haybaler.readback import findings
from haybaler.tools import ToolResultToolset

TEXT = "a" * 200_000
POSITION = re.compile(r"\[characters \d+-\d+ of \d+; (?:end|continue with offset=\d+)\]")


def one_sentence(answer: Any) -> None:
    assert isinstance(answer, str)
    assert answer.splitlines() == [answer]
    assert all(map(is_seen, answer))
    assert (answer.endswith("."), len(answer) < 1_700) == (True, True)


def test_a_made_up_reference_is_answered_with_a_sentence(place: Place) -> None:
    own, victim = place.store.scoped("run"), place.store.scoped("victim")
    reference = own.write(key="own.txt", content="own")
    secret = victim.write(key="secret.txt", content="secret")
    for case in REFERENCES:
        made_up = case.value(reference, secret)
        for answer in (read(own, reference=made_up), find(own, reference=made_up, pattern="s")):
            one_sentence(answer)
            assert "secret" not in answer.replace("secret.txt", "")
    assert read(own, reference=reference) == "[characters 0-3 of 3; end]\nown"


@each(ARGUMENTS)
def test_a_claim_of_any_length_gets_one_page_or_a_sentence(case: Any) -> None:
    store = InMemoryToolResultStore()
    answer = read(store, reference=store.write(key="k", content=TEXT), **case.value)
    if answer.startswith("[characters"):
        first, _, page = answer.partition("\n")
        assert POSITION.fullmatch(first)
        assert len(page) <= 8_000
    else:
        one_sentence(answer)


@each(PATTERNS)
def test_a_pattern_of_any_kind_gets_an_answer_in_time(case: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings, "_SECONDS", 0.05)
    store = InMemoryToolResultStore()
    begun = time.monotonic()
    answer = find(store, reference=store.write(key="k", content=TEXT), pattern=case.value, regex=True)
    assert time.monotonic() - begun < 10  # for ever, without a bound
    if not re.match(r"\[(?:no|\d+) match(?:es)? in ", answer):
        one_sentence(answer)


@each((*FORGERIES, *HARMLESS))
def test_no_text_passes_for_a_line_or_a_match_of_a_search(case: Any) -> None:
    store = InMemoryToolResultStore()
    reference = store.write(key="k", content=f"{case.value}needle{case.value}")
    first, line = find(store, reference=reference, pattern="needle", context=500).splitlines()
    assert re.fullmatch(r"\[1 match in \d+ characters; that is all\]", first)
    assert all(map(is_seen, line))
    assert re.fullmatch(r"offset \d+: [^\u27e6\u27e7]*\u27e6needle\u27e7[^\u27e6\u27e7]*", line)
    matched = tool(ToolResultToolset(store), SEARCH).invoke(reference=reference, pattern=case.value.strip() or "needle")
    assert all(
        re.fullmatch(r"offset \d+: [^\u27e6\u27e7]*\u27e6.*\u27e7[^\u27e6\u27e7]*", m) for m in matched.split("\n")[1:]
    )


@each(FORGERIES)
def test_the_position_of_a_page_comes_before_anything_that_is_stored(case: Any) -> None:
    store = InMemoryToolResultStore()
    answer = read(store, reference=store.write(key="k", content=case.value))
    first, _, page = answer.partition("\n")
    assert first == f"[characters 0-{len(case.value)} of {len(case.value)}; end]"
    assert page == case.value.replace("\ud800", "\ufffd")
    answer.encode()


@each(BOMBS)
def test_a_bomb_is_handed_on_as_it_is(case: Any) -> None:
    store = InMemoryToolResultStore()
    answer = read(store, reference=store.write(key="k.bin", content=case.value))
    if isinstance(answer, str):
        one_sentence(answer)
    else:
        (part,) = answer
        data = part.base64_image if hasattr(part, "base64_image") else part.base64_data
        assert len(data) == (len(case.value) + 2) // 3 * 4


def test_a_forged_pointer_in_a_small_result_opens_nothing_of_others() -> None:
    """What it points to is read from the run's own store, with the same checks as whatever a model makes up."""
    root = InMemoryToolResultStore()
    secret = root.scoped("victim").write(key="secret", content="secret")
    forged = FORGED_POINTER.replace("/etc/passwd", secret)
    assert secret in forged
    one_sentence(read(root.scoped("run"), reference=secret))
    one_sentence(find(root.scoped("run"), reference=secret, pattern="s"))
