"""What images and files add to a count: a flat fee for each, or what they measure."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from haystack.dataclasses import ChatMessage, FileContent, ImageContent, ToolCallResult

from haybaler.counters.files import tokens_of_file
from haybaler.counters.image_rules import ImageCost, serialize_rule
from haybaler.counters.images import size_of_image


class MediaFees(Protocol):
    """
    A counter's settings for images and files.

    :param tokens_per_image: Tokens for each image that is not measured.
    :param tokens_per_file: Tokens for each file that is not measured.
    :param image_rule: Measures images; None for the flat fee.
    :param tokens_per_page: Measures files: tokens for each page of a PDF file; None for the flat fee.
    """

    tokens_per_image: int
    tokens_per_file: int
    image_rule: ImageCost | None
    tokens_per_page: int | None


def media_tokens(messages: Sequence[ChatMessage], fees: MediaFees, *, bytes_per_token: float) -> int:
    """
    Charge for what has no text: the images and files of messages and of tool results.

    :param messages: The messages.
    :param fees: What is measured, and the flat fees for the rest.
    :param bytes_per_token: How many bytes of a document that is no PDF file make a token.
    :returns: Tokens.
    """
    tokens = 0
    for part in _media(messages):
        if isinstance(part, ImageContent):
            tokens += _image_tokens(part, fees)
        else:
            tokens += _file_tokens(part, fees, bytes_per_token)
    return tokens


def _media(messages: Sequence[ChatMessage]) -> Iterator[ImageContent | FileContent]:
    for message in messages:
        for part in message._content:  # noqa: SLF001 - each of the public views goes through all parts
            if isinstance(part, (ImageContent, FileContent)):
                yield part
            elif isinstance(part, ToolCallResult) and not isinstance(part.result, str):
                yield from (block for block in part.result if isinstance(block, (ImageContent, FileContent)))


def _image_tokens(image: ImageContent, fees: MediaFees) -> int:
    if fees.image_rule is None or (size := size_of_image(image.base64_image)) is None:
        return fees.tokens_per_image
    return fees.image_rule(*size, image.detail)


def _file_tokens(file: FileContent, fees: MediaFees, bytes_per_token: float) -> int:
    if fees.tokens_per_page is None:
        return fees.tokens_per_file
    tokens = tokens_of_file(
        file.base64_data, file.mime_type, tokens_per_page=fees.tokens_per_page, bytes_per_token=bytes_per_token
    )
    return fees.tokens_per_file if tokens is None else tokens


def serialize_fees(fees: MediaFees) -> dict[str, Any]:
    """
    Return the settings as they stand among a counter's `init_parameters`.

    :param fees: The settings.
    :returns: The flat fees, and what is measured as far as anything is.
    :raises NotSerializableError: If the image rule is a function without an import path.
    """
    measured = {
        "image_rule": None if fees.image_rule is None else serialize_rule(fees.image_rule),
        "tokens_per_page": fees.tokens_per_page,
    }
    return {
        "tokens_per_image": fees.tokens_per_image,
        "tokens_per_file": fees.tokens_per_file,
        **{name: value for name, value in measured.items() if value is not None},
    }
