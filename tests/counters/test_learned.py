"""What is learned from the provider's figures about single messages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haybaler.counters.learned import LearnedSizes

positive = st.floats(1, 10_000)


def test_the_first_figure_is_divided_by_what_each_message_probably_has() -> None:
    sizes = LearnedSizes()
    sizes.learn({1: 100.0, 2: 300.0}, 800)
    assert (sizes.size(1, 100.0), sizes.size(2, 300.0)) == (200.0, 600.0)
    assert sizes.factor == 2.0


def test_later_figures_say_what_the_new_messages_have() -> None:
    sizes = LearnedSizes()
    sizes.learn({1: 100.0}, 100)
    sizes.learn({1: 100.0, 2: 100.0}, 400)
    assert (sizes.size(1, 100.0), sizes.size(2, 100.0)) == (100.0, 300.0)


def test_a_message_that_no_figure_covers_is_scaled_like_the_others() -> None:
    sizes = LearnedSizes()
    sizes.learn({1: 100.0}, 150)
    assert sizes.size(2, 10.0) == 15.0


def test_what_is_far_from_its_judgement_says_nothing_about_others() -> None:
    """An image that was judged at a flat fee, for example."""
    sizes = LearnedSizes()
    sizes.learn({1: 100.0}, 100)
    sizes.learn({1: 100.0, 2: 85.0}, 1_700)
    assert sizes.size(2, 85.0) == 1_600.0
    assert sizes.factor == 1.0


def test_a_figure_that_contradicts_what_was_learned_scales_it_all() -> None:
    sizes = LearnedSizes()
    sizes.learn({1: 100.0, 2: 300.0}, 400)
    sizes.learn({1: 100.0, 2: 300.0, 3: 100.0}, 250)
    assert sum(sizes.size(key, likely) for key, likely in ((1, 100.0), (2, 300.0), (3, 100.0))) == pytest.approx(250)
    assert sizes.size(2, 300.0) == pytest.approx(3 * sizes.size(1, 100.0))


@given(st.lists(st.tuples(positive, positive), min_size=1, max_size=8))
def test_the_sizes_always_add_up_to_the_last_figure(steps: list[tuple[float, float]]) -> None:
    sizes = LearnedSizes()
    likely: dict[int, float] = {}
    figure = 0.0
    for key, (judged, added) in enumerate(steps):
        likely[key] = judged
        figure += added
        sizes.learn(likely, figure)
        assert sum(sizes.size(k, size) for k, size in likely.items()) == pytest.approx(figure)


@given(st.dictionaries(st.integers(0, 5), positive, min_size=1), st.lists(st.floats(0, 10**6), min_size=1, max_size=6))
def test_no_figure_makes_a_size_negative(likely: dict[int, float], figures: list[float]) -> None:
    sizes = LearnedSizes()
    for figure in figures:
        sizes.learn(likely, figure)
        assert all(sizes.size(key, size) >= 0 for key, size in likely.items())


def test_what_is_gone_is_forgotten() -> None:
    sizes = LearnedSizes()
    sizes.learn({1: 100.0, 2: 100.0}, 800)
    sizes.keep_only({2})
    sizes.learn({2: 100.0, 1: 100.0}, 500)
    assert (sizes.size(2, 100.0), sizes.size(1, 100.0)) == (400.0, 100.0)
