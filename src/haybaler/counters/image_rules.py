"""What providers charge for an image of a given size, by the rules that they publish."""

from bisect import bisect_right
from collections.abc import Callable
from enum import Enum
from math import ceil, isqrt
from typing import Any

from haystack.core.errors import DeserializationError, SerializationError
from haystack.utils import deserialize_callable, serialize_callable

from haybaler.errors import ConfigurationError, NotSerializableError

# From width, height and `ImageContent.detail` to tokens. An `ImageRule` is one, and so is a function of your own.
ImageCost = Callable[[int, int, str | None], int]


def openai_tiles(width: int, height: int, detail: str | None, *, base: int = 85, tile: int = 170) -> int:
    """
    Charge for tiles of 512 pixels, after scaling down to 2,048 pixels and then to a shortest side of 768.

    Source: "Tile-based image tokenization", https://developers.openai.com/api/docs/guides/images-vision. An image is
    never enlarged: one of 512 x 512 is billed as one tile.

    :param width: Pixels.
    :param height: Pixels.
    :param detail: `low` costs the base alone; everything else counts as `high`.
    :param base: Tokens for the whole: 85 for GPT-4o and GPT-4.1, 70 for GPT-5, 75 for o1 and o3, 2,833 for GPT-4o mini.
    :param tile: Tokens for each tile: 170, 140, 150 and 5,667 for the same models.
    :returns: Tokens.
    """
    if detail == "low":
        return base
    width, height = _within(width, height, longest=2048)
    if (shortest := min(width, height)) > 768:
        width, height = width * 768 // shortest, height * 768 // shortest
    return base + tile * ceil(width / 512) * ceil(height / 512)


def openai_patches(
    width: int,
    height: int,
    detail: str | None,
    *,
    budget: int = 2500,
    multiplier: float = 1.2,
) -> int:
    """
    Charge for patches of 32 pixels, after scaling down to 2,048 pixels and to a number of patches.

    Source: "Patch-based image tokenization" and "Model sizing behavior" for `high` detail,
    https://developers.openai.com/api/docs/guides/images-vision.

    :param width: Pixels.
    :param height: Pixels.
    :param detail: `low` scales down to 512 pixels; everything else counts as `high`.
    :param budget: Patches: 2,500 for GPT-5.4 and later; 1,536 for the smaller and earlier models with this rule.
    :param multiplier: Tokens for each patch: 1.2 for GPT-5.4 and later, 1.62 for GPT-4.1 mini, 2.46 for GPT-4.1 nano,
        1.72 for o4-mini.
    :returns: Tokens.
    """
    width, height = _within(width, height, longest=512 if detail == "low" else 2048)
    if ceil(width / 32) * ceil(height / 32) > budget:
        # The published formula in whole numbers: as many columns and rows as keep the shape, and then the smaller scale
        # of the two, so that one of them comes out even.
        columns, rows = max(1, isqrt(budget * width // height)), max(1, isqrt(budget * height // width))
        if columns * height <= rows * width:
            width, height = 32 * columns, max(1, height * 32 * columns // width)
        else:
            width, height = max(1, width * 32 * rows // height), 32 * rows
    return ceil(min(budget, ceil(width / 32) * ceil(height / 32)) * multiplier)


def anthropic(
    width: int,
    height: int,
    detail: str | None,  # noqa: ARG001 - Anthropic knows no levels
    *,
    longest: int = 1568,
    most: int = 1568,
) -> int:
    """
    Charge for patches of 28 pixels, after scaling down to the largest size within both limits.

    Source: "Resolution and token cost", https://platform.claude.com/docs/en/build-with-claude/vision. It replaces the
    earlier approximation of width x height / 750, which comes out up to 5 % higher for images that fit.

    :param width: Pixels.
    :param height: Pixels.
    :param detail: Not looked at.
    :param longest: Pixels of the longest side: 1,568, or 2,576 for Claude 4.7 and later.
    :param most: Tokens: 1,568, or 4,784 for Claude 4.7 and later.
    :returns: Tokens.
    """
    long, short = max(width, height), min(width, height)

    def cost(side: int) -> int:
        return ceil(side / 28) * ceil(max(1, round(side * short / long)) / 28)

    side = min(long, longest // 28 * 28)
    return cost(side) if cost(side) <= most else cost(bisect_right(range(side), most, lo=1, key=cost) - 1)


def gemini(width: int, height: int, detail: str | None) -> int:  # noqa: ARG001 - Gemini knows no levels here
    """
    Charge 258 for each tile; a tile's side is two thirds of the shorter side, at least 256 and at most 768 pixels.

    Sources: "Count multimodal tokens", https://ai.google.dev/gemini-api/docs/tokens; "Token calculation",
    https://ai.google.dev/gemini-api/docs/image-understanding; and the same page for Vertex AI, from which the limits
    are. Images of up to 384 pixels are one tile; ones of more than 3,072 are scaled down. From Gemini 3 on, the
    parameter `media_resolution` sets a flat fee, 1,120 by default: set `tokens_per_image` to it and use no rule.

    :param width: Pixels.
    :param height: Pixels.
    :param detail: Not looked at.
    :returns: Tokens.
    """
    if max(width, height) <= 384:
        return 258
    width, height = _within(width, height, longest=3072)
    side = min(768, max(256, min(width, height) * 2 // 3))
    return 258 * ceil(width / side) * ceil(height / side)


def _within(width: int, height: int, *, longest: int) -> tuple[int, int]:
    if (long := max(width, height)) <= longest:
        return width, height
    return max(1, width * longest // long), max(1, height * longest // long)


class ImageRule(Enum):
    """
    How a provider charges for images. Each can be called with width, height and level of detail.

    - `OPENAI_TILES`: GPT-4o and GPT-4.1; GPT-5, o1 and o3 charge a little less.
    - `OPENAI_PATCHES`: GPT-5.4 and later, at `high` detail.
    - `ANTHROPIC`: Claude before 4.7.
    - `ANTHROPIC_HIGH_RESOLUTION`: Claude 4.7 and later.
    - `GEMINI`: Gemini 2.

    For other models, write a function that calls the rule's function in this module with that model's figures.
    """

    OPENAI_TILES = "openai_tiles"
    OPENAI_PATCHES = "openai_patches"
    ANTHROPIC = "anthropic"
    ANTHROPIC_HIGH_RESOLUTION = "anthropic_high_resolution"
    GEMINI = "gemini"

    def __call__(self, width: int, height: int, detail: str | None = None) -> int:
        """
        Return the tokens of an image.

        :param width: Pixels.
        :param height: Pixels.
        :param detail: `low`, `high`, `auto` or None; what OpenAI's rules make of it.
        :returns: Tokens.
        """
        return _RULES[self](width, height, detail)


def _anthropic_high_resolution(width: int, height: int, detail: str | None) -> int:
    return anthropic(width, height, detail, longest=2576, most=4784)


_RULES: dict[ImageRule, ImageCost] = {
    ImageRule.OPENAI_TILES: openai_tiles,
    ImageRule.OPENAI_PATCHES: openai_patches,
    ImageRule.ANTHROPIC: anthropic,
    ImageRule.ANTHROPIC_HIGH_RESOLUTION: _anthropic_high_resolution,
    ImageRule.GEMINI: gemini,
}


def serialize_rule(rule: ImageCost) -> str:
    """
    Return a rule's serialized form.

    :param rule: An `ImageRule` or a function.
    :returns: The rule's value or the function's import path.
    :raises NotSerializableError: If it is a function without an import path, such as a lambda.
    """
    if isinstance(rule, ImageRule):
        return rule.value
    try:
        return serialize_callable(rule)
    except (SerializationError, AttributeError) as error:
        raise NotSerializableError("An image rule of your own must be a function that can be imported.") from error


def deserialize_rule(data: dict[str, Any]) -> None:
    """
    Replace the serialized form of `image_rule` among the `init_parameters` by the rule.

    :param data: The serialized form of a counter; changed in place.
    :raises ConfigurationError: If it names no rule, or a function of a module from which loading is not allowed.
    """
    parameters = data.get("init_parameters", {})
    name = parameters.get("image_rule")
    if not isinstance(name, str):
        return
    try:
        known = name in {rule.value for rule in ImageRule}
        parameters["image_rule"] = ImageRule(name) if known else deserialize_callable(name)
    except DeserializationError as error:
        raise ConfigurationError(f"The image rule {name!r} cannot be loaded.") from error
