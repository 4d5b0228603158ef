"""The corpora are what they say."""

from collections import Counter

from tests.hostile import (
    corpus_names,
    corpus_places,
    corpus_plants,
    corpus_readback,
    corpus_records,
    corpus_texts,
    corpus_urls,
)
from tests.hostile.case import Case

from haybaler.testing.corpus import KEYS, SCOPES

CORPORA = {
    f"{module.__name__.rpartition('.')[2]}.{name}": value
    for module in (
        corpus_names,
        corpus_places,
        corpus_plants,
        corpus_readback,
        corpus_records,
        corpus_texts,
        corpus_urls,
    )
    for name, value in vars(module).items()
    if isinstance(value, tuple) and value and isinstance(value[0], Case)
}


def test_there_are_five_hundred_hostile_inputs_and_more() -> None:
    assert sum(len(cases) for cases in CORPORA.values()) >= 550


def test_each_case_has_a_name_of_its_own_and_says_what_it_attacks() -> None:
    for name, cases in CORPORA.items():
        named = Counter((case.attacks, case.name) for case in cases)
        assert [key for key, count in named.items() if count > 1] == [], name
        assert all(case.attacks and case.name for case in cases)


def test_no_value_is_there_twice() -> None:
    """Of names, places and texts; equal ids of calls are a case of their own."""
    for name, cases in CORPORA.items():
        values = [repr(case.value) for case in cases if isinstance(case.value, (str, bytes))]
        assert len(values) - len(set(values)) == (1 if name.endswith("CALL_IDS") else 0), name


def test_the_kit_for_all_stores_has_none_of_the_keys_and_scopes() -> None:
    assert not {case.value for case in corpus_places.KEYS} & set(KEYS)
    assert not {case.value for case in corpus_places.SCOPES} & set(SCOPES)
