"""Images are measured by their dimensions, read from their headers; what cannot be read costs the flat fee."""

import json
from collections.abc import Callable
from typing import Any, SupportsIndex

import pytest
from haystack.core.serialization import allow_deserialization_module
from haystack.dataclasses import ChatMessage, ImageContent, TextContent, ToolCall
from hypothesis import given
from hypothesis import strategies as st
from tests.compactors.conversations import answer
from tests.counters import pictures
from tests.counters.pictures import encoded
from tests.hooks.agents import Colour, agent_state, both_colours, call, calling

from haybaler import (
    ApproximateTokenCounter,
    ImageRule,
    InMemoryToolResultStore,
    OffloadOverTokens,
    TiktokenCounter,
    ToolResultOffloadHook,
)
from haybaler.counters.image_rules import openai_patches
from haybaler.counters.images import size_of_image
from haybaler.errors import ConfigurationError, NotSerializableError
from haybaler.references import is_offloaded

allow_deserialization_module("haybaler*")
allow_deserialization_module("tests*")

THUMBNAIL = pictures.jpeg(160, 120)
BOTH_COUNTERS = pytest.mark.parametrize("counter", [ApproximateTokenCounter, TiktokenCounter])


class Watched(str):
    """A payload that knows how many of its characters were looked at."""

    read: int
    __slots__ = ("read",)

    def __getitem__(self, key: SupportsIndex | slice) -> str:
        found = super().__getitem__(key)
        self.read = getattr(self, "read", 0) + len(found)
        return found


def by_area(width: int, height: int, detail: str | None) -> int:
    """Charge a token for 100 pixels, as a rule of somebody's own."""
    return width * height // 100 if detail != "low" else 1


def image(data: bytes, **settings: Any) -> ImageContent:
    return ImageContent(base64_image=encoded(data), mime_type="image/png", validation=False, **settings)


SIZED = {
    "png": pictures.png(640, 480),
    "gif87": pictures.gif(640, 480, version=b"GIF87a"),
    "gif89": pictures.gif(640, 480),
    "animated gif": pictures.gif(640, 480, frames=50),
    "jpeg": pictures.jpeg(640, 480),
    "progressive jpeg": pictures.jpeg(640, 480, marker=0xC2),
    "lossless jpeg": pictures.jpeg(640, 480, marker=0xC3),
    "arithmetic jpeg": pictures.jpeg(640, 480, marker=0xC9),
    "grey jpeg": pictures.jpeg(640, 480, components=1),
    "CMYK jpeg": pictures.jpeg(640, 480, components=4),
    "jpeg with a thumbnail": pictures.jpeg(640, 480, before=[pictures.exif(THUMBNAIL)]),
    "jpeg with thumbnails": pictures.jpeg(640, 480, before=[pictures.exif(THUMBNAIL)] * 9),
    "jpeg with a color profile": pictures.jpeg(640, 480, before=pictures.color_profile(200_000)),
    "jpeg with a filling byte": pictures.jpeg(640, 480, before=[b"\xff" + pictures.segment(0xFE, b"a remark")]),
    "jpeg with filling bytes": pictures.jpeg(640, 480, before=[b"\xff" * 6 + pictures.segment(0xFE, b"a remark")]),
    "jpeg with markers that have no length": pictures.jpeg(640, 480, before=[b"\xff\x01\xff\xd0\xff\xd7"]),
    "lossy webp": pictures.webp_lossy(640, 480),
    "scaled webp": pictures.webp_lossy(640, 480, scaling=3),
    "lossless webp": pictures.webp_lossless(640, 480),
    "extended webp": pictures.webp_extended(640, 480),
}


@pytest.mark.parametrize("data", SIZED.values(), ids=SIZED.keys())
def test_the_size_is_read_from_the_header(data: bytes) -> None:
    assert size_of_image(encoded(data)) == (640, 480)


@pytest.mark.parametrize("data", SIZED.values(), ids=SIZED.keys())
def test_a_cut_off_header_gives_the_size_or_nothing(data: bytes) -> None:
    payload = encoded(data)[:4000]
    assert {size_of_image(payload[:length]) for length in range(len(payload))} <= {None, (640, 480)}
    assert {size_of_image(encoded(data[:length])) for length in range(min(len(data), 3000))} <= {None, (640, 480)}


LARGEST: list[Callable[[int, int], bytes]] = [
    pictures.png_header,
    pictures.gif,
    pictures.jpeg,
    pictures.webp_extended,
]


@pytest.mark.parametrize("write", LARGEST)
def test_sizes_at_the_limits_are_read(write: Callable[[int, int], bytes]) -> None:
    assert size_of_image(encoded(write(65_535, 1))) == (65_535, 1)
    assert size_of_image(encoded(write(1, 65_535))) == (1, 65_535)


@pytest.mark.parametrize("write", [pictures.webp_lossy, pictures.webp_lossless])
def test_the_largest_webp_images_are_read(write: Callable[[int, int], bytes]) -> None:
    assert size_of_image(encoded(write(16_383, 1))) == (16_383, 1)
    assert size_of_image(encoded(write(1, 16_383))) == (1, 16_383)


UNREADABLE = {
    "nothing": b"",
    "text": b"Hello, world. " * 10,
    "html": b"<!DOCTYPE html><img width=640 height=480>" * 3,
    "svg": b'<svg xmlns="http://www.w3.org/2000/svg" width="640" height="480"/>',
    "bmp": b"BM" + bytes(16) + b"\x80\x02\0\0\xe0\x01\0\0" + bytes(30),
    "tiff": b"II*\0" + bytes(60),
    "sound": b"RIFF\x24\0\0\0WAVEfmt " + bytes(40),
    "avif": b"\0\0\0\x20ftypavif" + bytes(60),
    "png without a header": b"\x89PNG\r\n\x1a\n" + bytes(40),
    "png of no area": pictures.png_header(0, 480),
    "png that claims too much": pictures.png_header(2**31 - 1, 480),
    "png just too large": pictures.png_header(640, 65_536),
    "gif of no area": pictures.gif(640, 0),
    "gif of an unknown version": pictures.gif(640, 480, version=b"GIF88a"),
    "webp that claims too much": pictures.webp_extended(2**24, 2**24),
    "webp without a frame": pictures.webp(b"VP8 ", bytes(40)),
    "webp of an unknown kind": pictures.webp(b"VP9 ", bytes(40)),
    "jpeg of no area": pictures.jpeg(0, 0),
    "jpeg whose height comes later": pictures.jpeg(640, 0),
    "jpeg without a frame": b"\xff\xd8" + pictures.segment(0xE0, bytes(14)) + pictures.segment(0xDA, bytes(10)),
    "jpeg with its frame behind its data": b"\xff\xd8" + pictures.segment(0xDA, b"") + pictures.frame(640, 480),
    "jpeg that ends before its frame": b"\xff\xd8" + pictures.segment(0xD9, b"") + pictures.frame(640, 480),
    "jpeg that begins twice": b"\xff\xd8" + pictures.segment(0xD8, b"") + pictures.frame(640, 480),
    "jpeg with an escape for a marker": b"\xff\xd8" + pictures.segment(0x00, b"") + pictures.frame(640, 480),
    "jpeg whose segment has no room for its length": b"\xff\xd8\xff\xe0\0\0" + pictures.frame(640, 480),
    "jpeg whose segment goes on behind its end": b"\xff\xd8\xff\xe0\xff\xff" + pictures.frame(640, 480),
    "jpeg with something between its segments": pictures.jpeg(640, 480, before=[b"xx"]),
    "jpeg of nothing but segments": b"\xff\xd8" + pictures.segment(0xE0, b"") * 5000 + pictures.frame(640, 480),
    "jpeg of nothing but filling": b"\xff\xd8" + b"\xff" * 100_000,
}


@pytest.mark.parametrize("data", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_what_has_no_readable_size_costs_the_flat_fee(data: bytes) -> None:
    assert size_of_image(encoded(data)) is None
    counter = ApproximateTokenCounter(tokens_per_image=77_000, image_rule=ImageRule.OPENAI_TILES)
    assert 77_000 < counter.count([ChatMessage.from_user(content_parts=[image(data)])]) < 77_010


@pytest.mark.parametrize(
    "payload",
    [
        "no base64!",
        "=" * 40,
        "\ud800" * 40,
        "図" * 40,
        "\0" * 40,
        "data:image/png;base64," + encoded(pictures.png(640, 480)),
        "\n\n\n\n" + encoded(pictures.png(640, 480)),
        "iVBORw0KGgo=" + encoded(pictures.png(640, 480)),
    ],
)
def test_what_is_no_base64_has_no_size(payload: str) -> None:
    assert size_of_image(payload) is None


HEADS = [b"", b"\x89PNG\r\n\x1a\n", b"\xff\xd8", b"\xff\xd8\xff", b"GIF89a", b"RIFF\0\0\0\0WEBPVP8"]


@given(head=st.sampled_from(HEADS), tail=st.binary(max_size=200), cut=st.integers(0, 3))
def test_no_header_raises_or_costs_much(head: bytes, tail: bytes, cut: int) -> None:
    payload = encoded(head + tail)
    watched = Watched(payload[: len(payload) - cut] + "A" * 4 * 1000)
    size = size_of_image(watched)
    assert size is None or all(0 < side <= 65_535 for side in size)
    assert watched.read <= 40 + 300 * 16


@given(
    segments=st.lists(st.tuples(st.integers(0, 255), st.binary(max_size=12), st.integers(-3, 3)), max_size=40),
    real=st.booleans(),
)
def test_no_order_of_segments_raises(segments: list[tuple[int, bytes, int]], *, real: bool) -> None:
    written = [
        b"\xff" + bytes([marker]) + max(0, len(data) + 2 + lie).to_bytes(2, "big") + data
        for marker, data, lie in segments
    ]
    size = size_of_image(encoded(b"\xff\xd8" + b"".join(written) + (pictures.frame(640, 480) if real else b"")))
    assert size is None or all(0 < side <= 65_535 for side in size)


def test_of_a_large_image_only_the_header_is_decoded() -> None:
    before = [pictures.exif(bytes(60_000)), *pictures.color_profile(5_000_000)]
    large = Watched(encoded(pictures.jpeg(4000, 3000, before=before)))
    assert size_of_image(large) == (4000, 3000)
    assert len(large) > 6_000_000
    assert large.read < 2000
    plain = Watched(encoded(pictures.png_header(4000, 3000) + bytes(3_000_000)))
    assert size_of_image(plain) == (4000, 3000)
    assert plain.read == 40


@BOTH_COUNTERS
def test_images_are_measured_wherever_they_stand(counter: Any) -> None:
    picture = image(pictures.png(1024, 1024))
    for message in (
        ChatMessage.from_user(content_parts=["See:", picture]),
        answer(ToolCall("look", {}), [TextContent("x"), picture]),
    ):
        flat = counter(tokens_per_image=0).count([message])
        assert counter(tokens_per_image=9, image_rule=ImageRule.OPENAI_TILES).count([message]) == flat + 765
        assert counter(image_rule=ImageRule.ANTHROPIC).count([message]) == flat + 37 * 37
        assert counter(image_rule=by_area).count([message]) == flat + 10_485


@BOTH_COUNTERS
def test_the_level_of_detail_counts(counter: Any) -> None:
    def tokens(detail: Any) -> int:
        message = ChatMessage.from_user(content_parts=[image(pictures.png(1024, 1024), detail=detail)])
        return int(counter(image_rule=ImageRule.OPENAI_TILES).count([message]))

    assert tokens("high") == tokens("auto") == tokens(None) == tokens("low") + 680


@BOTH_COUNTERS
def test_without_a_rule_every_image_costs_the_flat_fee(counter: Any) -> None:
    large = image(pictures.png_header(4000, 3000) + bytes(300_000))
    messages = [ChatMessage.from_user(content_parts=[large] * 20)]
    flat = counter().count(messages)
    assert flat == counter(tokens_per_image=0).count(messages) + 20 * 85
    assert counter(image_rule=ImageRule.ANTHROPIC).count(messages) == flat + 20 * (1564 - 85)


@BOTH_COUNTERS
@pytest.mark.parametrize(
    "rule", [*ImageRule, openai_patches, by_area, None], ids=lambda rule: getattr(rule, "__name__", str(rule))
)
def test_a_rule_survives_serialization(counter: Any, rule: Any) -> None:
    data = json.loads(json.dumps(counter(image_rule=rule, tokens_per_page=None if rule is None else 9).to_dict()))
    loaded = counter.from_dict(data)
    assert loaded.image_rule is rule
    assert loaded.tokens_per_page == (None if rule is None else 9)
    assert counter.from_dict(counter(image_rule=rule).to_dict()).to_dict() == counter(image_rule=rule).to_dict()


def test_a_rule_without_an_import_path_is_named_when_it_is_serialized() -> None:
    class Rule:
        def __call__(self, width: int, height: int, detail: str | None) -> int:
            return 1

    for rule in (lambda width, height, detail: 1, Rule()):
        counter = ApproximateTokenCounter(image_rule=rule)
        assert counter.count([ChatMessage.from_user(content_parts=[image(pictures.png(9, 9))])]) > 0
        with pytest.raises(NotSerializableError, match="image rule"):
            counter.to_dict()


@pytest.mark.parametrize("name", ["openai_tile", "os.system", "haybaler.counters.image_rules.nothing"])
def test_a_rule_that_cannot_be_loaded_is_refused(name: str) -> None:
    data = ApproximateTokenCounter().to_dict()
    data["init_parameters"]["image_rule"] = name
    with pytest.raises(ConfigurationError, match="image rule"):
        ApproximateTokenCounter.from_dict(data)


@both_colours
def test_a_large_image_is_offloaded_by_its_tokens_and_a_small_one_stays(colour: Colour) -> None:
    # The small picture has the longer payload.
    large, small = image(pictures.png(2000, 1500)), image(pictures.png(200, 150) + bytes(200_000))
    assert len(small.base64_image) > len(large.base64_image)
    calls = [call("look", 1), call("look", 2)]
    answers = [answer(made, [picture]) for made, picture in zip(calls, (large, small), strict=True)]
    messages = [ChatMessage.from_user("task"), calling(*calls), *answers]
    counter = ApproximateTokenCounter(image_rule=ImageRule.ANTHROPIC)

    def left(**settings: Any) -> list[bool]:
        hook = ToolResultOffloadHook(InMemoryToolResultStore(), {"*": OffloadOverTokens(1000)}, **settings)
        state = agent_state(messages)
        colour.call(hook, "run", state)
        return [is_offloaded(message) for message in state.data["messages"][2:]]

    assert left(token_counter=counter) == [True, False]
    assert left() == [False, False]
