"""The published rules give what their publishers say they give."""

from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from haybaler import ImageRule
from haybaler.counters.image_rules import anthropic, gemini, openai_patches, openai_tiles


@pytest.mark.parametrize(
    ("rule", "size", "detail", "tokens"),
    [
        # The examples of https://developers.openai.com/api/docs/guides/images-vision
        (openai_tiles, (1024, 1024), "high", 765),
        (openai_tiles, (2048, 4096), "high", 1105),
        (openai_tiles, (4096, 8192), "low", 85),
        (openai_tiles, (512, 512), None, 255),
        (openai_tiles, (513, 512), "auto", 425),
        (openai_tiles, (1, 65_535), None, 765),
        (openai_patches, (640, 480), None, 360),
        (openai_patches, (640, 480), "low", 231),
        (openai_patches, (1024, 1024), "high", 1229),
        (openai_patches, (1600, 1600), "high", 3000),
        (openai_patches, (65_535, 65_535), "high", 3000),
        (openai_patches, (65_535, 65_535), "low", 308),
        (openai_patches, (1, 65_535), None, 77),
        # The examples of https://platform.claude.com/docs/en/build-with-claude/vision
        (anthropic, (200, 200), None, 64),
        (anthropic, (1000, 1000), "low", 1296),
        (anthropic, (1092, 1092), None, 1521),
        (anthropic, (1920, 1080), None, 1560),
        (anthropic, (2000, 1500), None, 1564),
        (anthropic, (3840, 2160), None, 1560),
        (ImageRule.ANTHROPIC_HIGH_RESOLUTION, (1092, 1092), None, 1521),
        (ImageRule.ANTHROPIC_HIGH_RESOLUTION, (1920, 1080), None, 2691),
        (ImageRule.ANTHROPIC_HIGH_RESOLUTION, (2000, 1500), None, 3888),
        (ImageRule.ANTHROPIC_HIGH_RESOLUTION, (3840, 2160), None, 4784),
        (anthropic, (1, 65_535), None, 56),
        # The example of https://ai.google.dev/gemini-api/docs/image-understanding is 960 x 540
        (gemini, (384, 384), None, 258),
        (gemini, (960, 540), None, 6 * 258),
        (gemini, (385, 10), None, 2 * 258),
        (gemini, (1024, 1024), None, 4 * 258),
        (gemini, (65_535, 65_535), None, 16 * 258),
    ],
)
def test_the_published_examples_come_out(
    rule: Callable[[int, int, str | None], int], size: tuple[int, int], detail: str | None, tokens: int
) -> None:
    assert rule(*size, detail) == tokens


def test_the_figures_of_other_models_can_be_given() -> None:
    assert openai_patches(1024, 1024, "high", budget=1536, multiplier=1) == 1024
    assert openai_patches(1800, 2400, "high", budget=1536, multiplier=1) == 1452
    assert openai_patches(1800, 2400, "high", budget=1536, multiplier=1.62) == 2353
    assert openai_tiles(1024, 1024, "high", base=70, tile=140) == 70 + 4 * 140
    assert openai_tiles(1024, 1024, "low", base=70, tile=140) == 70
    assert anthropic(3000, 28, None, longest=1580) == 56
    # A budget smaller than any shape: one row of patches at least.
    assert openai_patches(1, 2048, None, budget=1, multiplier=1) == 1


MOST = {
    ImageRule.OPENAI_TILES: 85 + 8 * 170,
    ImageRule.OPENAI_PATCHES: 3000,
    ImageRule.ANTHROPIC: 1568,
    ImageRule.ANTHROPIC_HIGH_RESOLUTION: 4784,
    ImageRule.GEMINI: 24 * 258,
}


@pytest.mark.parametrize("rule", ImageRule)
@given(
    size=st.tuples(st.integers(1, 65_535), st.integers(1, 65_535)),
    detail=st.sampled_from([None, "auto", "high", "low", "original"]),
)
@example(size=(1, 1), detail="low")
@example(size=(1, 65_535), detail="high")
@example(size=(65_535, 65_535), detail=None)
def test_no_size_costs_nothing_or_without_bound(rule: ImageRule, size: tuple[int, int], detail: str | None) -> None:
    width, height = size
    assert 1 <= rule(width, height, detail) <= MOST[rule]
    # So that it does not matter that EXIF may turn an image by 90 degrees.
    assert rule(width, height, detail) == rule(height, width, detail)
    assert rule(width, height, "low") <= rule(width, height, "high")
