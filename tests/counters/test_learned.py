"""What is learned from the provider's figures about single messages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haybaler.counters.learned import Judged, LearnedSizes


def size(sizes: LearnedSizes, key: int, judged: Judged) -> float:
    return sizes.sizes([key], [judged])[0]


judgements = st.builds(Judged, st.floats(1, 10_000), st.booleans())


def test_the_first_figure_is_divided_by_what_each_message_probably_has() -> None:
    sizes = LearnedSizes()
    sizes.learn({1: Judged(100.0), 2: Judged(300.0)}, 800)
    assert (size(sizes, 1, Judged(100.0)), size(sizes, 2, Judged(300.0))) == (200.0, 600.0)
    assert sizes.factor() == 2.0


def test_later_figures_say_what_the_new_messages_have() -> None:
    sizes = LearnedSizes()
    sizes.learn({1: Judged(100.0)}, 100)
    sizes.learn({1: Judged(100.0), 2: Judged(100.0)}, 400)
    assert (size(sizes, 1, Judged(100.0)), size(sizes, 2, Judged(100.0))) == (100.0, 300.0)


def test_a_message_that_no_figure_covers_is_scaled_like_the_others() -> None:
    sizes = LearnedSizes()
    sizes.learn({1: Judged(100.0)}, 150)
    assert size(sizes, 2, Judged(10.0)) == 15.0


def test_what_is_far_from_its_judgement_says_nothing_about_others() -> None:
    """An image that was judged at a flat fee, for example."""
    sizes = LearnedSizes()
    sizes.learn({1: Judged(100.0)}, 100)
    sizes.learn({1: Judged(100.0), 2: Judged(85.0)}, 1_700)
    assert size(sizes, 2, Judged(85.0)) == 1_600.0
    assert sizes.factor() == 1.0


def test_a_figure_that_contradicts_what_was_learned_scales_it_all() -> None:
    sizes = LearnedSizes()
    sizes.learn({1: Judged(100.0), 2: Judged(300.0)}, 400)
    sizes.learn({1: Judged(100.0), 2: Judged(300.0), 3: Judged(100.0)}, 250)
    assert sum(
        size(sizes, key, Judged(tokens)) for key, tokens in ((1, 100.0), (2, 300.0), (3, 100.0))
    ) == pytest.approx(250)
    assert size(sizes, 2, Judged(300.0)) == pytest.approx(3 * size(sizes, 1, Judged(100.0)))


@given(st.lists(st.tuples(st.lists(judgements, min_size=1, max_size=3), st.floats(1, 10_000)), min_size=1, max_size=8))
def test_the_sizes_always_add_up_to_the_last_figure(steps: list[tuple[list[Judged], float]]) -> None:
    sizes = LearnedSizes()
    judged: dict[int, Judged] = {}
    figure = 0.0
    for added, tokens in steps:
        judged |= {len(judged) + number: size for number, size in enumerate(added)}
        figure += tokens
        sizes.learn(judged, figure)
        assert sum(size(sizes, key, judgement) for key, judgement in judged.items()) == pytest.approx(figure)


@given(
    st.dictionaries(st.integers(0, 5), judgements, min_size=1), st.lists(st.floats(0, 10**6), min_size=1, max_size=6)
)
def test_no_figure_makes_a_size_negative(judged: dict[int, Judged], figures: list[float]) -> None:
    sizes = LearnedSizes()
    for figure in figures:
        sizes.learn(judged, figure)
        assert all(size(sizes, key, judgement) >= 0 for key, judgement in judged.items())


def test_a_surprise_is_put_down_to_the_text_that_is_hard_to_judge() -> None:
    sizes = LearnedSizes()
    sizes.learn({1: Judged(100.0), 2: Judged(600.0, foreign=True)}, 1_000)
    assert size(sizes, 1, Judged(100.0)) == pytest.approx(100, rel=0.02)
    assert size(sizes, 3, Judged(60.0)) == pytest.approx(60, rel=0.02)
    assert size(sizes, 4, Judged(600.0, foreign=True)) == pytest.approx(900, rel=0.02)


def test_where_all_text_is_easy_to_judge_a_surprise_scales_it_all() -> None:
    sizes = LearnedSizes()
    sizes.learn({1: Judged(100.0), 2: Judged(600.0)}, 1_050)
    assert size(sizes, 3, Judged(60.0)) == 90.0


def test_what_is_gone_is_forgotten() -> None:
    sizes = LearnedSizes()
    sizes.learn({1: Judged(100.0), 2: Judged(100.0)}, 800)
    sizes.keep_only({2})
    sizes.learn({2: Judged(100.0), 1: Judged(100.0)}, 500)
    assert (size(sizes, 2, Judged(100.0)), size(sizes, 1, Judged(100.0))) == (400.0, 100.0)
