"""The dimensions of an image, read from the first bytes of its base64 form."""

from binascii import Error, a2b_base64
from collections.abc import Callable

# What a size of each format takes at most: the signature and the first chunk of a WebP file.
_HEAD = 30

# JPEG and GIF cannot say more, and no provider takes more: what claims to be larger lies.
_LARGEST = 65_535

# Segments of a JPEG file that are passed over in search of its frame. A color profile may have 255 of them.
_MOST_SEGMENTS = 300

_START_OF_FRAME = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_WITHOUT_LENGTH = frozenset({0x01, *range(0xD0, 0xD8)})
# No marker, a second beginning, the end, and the image data: no frame comes after them.
_WITHOUT_SEQUEL = frozenset({0x00, 0xD8, 0xD9, 0xDA})

Size = tuple[int, int]


def size_of_image(base64_image: str) -> Size | None:
    """
    Read the dimensions of a PNG, JPEG, GIF or WebP image, by its signature and not by what it is said to be.

    Only as much is decoded as it takes: some 40 characters, and as many again for each segment that stands before the
    frame of a JPEG file, such as a thumbnail or a color profile. The pixels are never looked at.

    :param base64_image: The image.
    :returns: Width and height in pixels, of an animation its canvas. None if the format is another one, or the header
        is cut off, damaged, or claims no area or more than 65,535 pixels in a direction.
    """
    try:
        head = _decoded(base64_image, 0, _HEAD)
        size = next((read(head, base64_image) for sign, read in _FORMATS if head.startswith(sign)), None)
    except (Error, ValueError):
        return None
    return size if size is not None and all(0 < side <= _LARGEST for side in size) else None


def _decoded(payload: str, start: int, count: int) -> bytes:
    """Decode the bytes from `start` on, fewer than `count` at the end of the payload."""
    aligned = payload[start // 3 * 4 : -(-(start + count) // 3) * 4]
    return a2b_base64(aligned, strict_mode=True)[start % 3 : start % 3 + count]


def _png(head: bytes, _payload: str) -> Size | None:
    if head[12:16] != b"IHDR" or len(head) < 24:
        return None
    return int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")


def _gif(head: bytes, _payload: str) -> Size | None:
    if head[:6] not in {b"GIF87a", b"GIF89a"} or len(head) < 10:
        return None
    return int.from_bytes(head[6:8], "little"), int.from_bytes(head[8:10], "little")


def _webp(head: bytes, _payload: str) -> Size | None:
    # RFC 9649: lossy, lossless, and the extended form with metadata or an animation.
    kind = head[8:16]
    if kind == b"WEBPVP8 " and head[23:26] == b"\x9d\x01\x2a" and len(head) >= 30:
        # The upper two bits of each side ask for scaling when it is shown.
        return int.from_bytes(head[26:28], "little") & 0x3FFF, int.from_bytes(head[28:30], "little") & 0x3FFF
    if kind == b"WEBPVP8L" and head[20:21] == b"\x2f" and len(head) >= 25:
        bits = int.from_bytes(head[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"WEBPVP8X" and len(head) >= 30:
        return int.from_bytes(head[24:27], "little") + 1, int.from_bytes(head[27:30], "little") + 1
    return None


def _jpeg(_head: bytes, payload: str) -> Size | None:
    at = 2
    for _ in range(_MOST_SEGMENTS):
        segment = _decoded(payload, at, 9)
        if len(segment) < 9 or segment[0] != 0xFF:
            return None
        marker = segment[1]
        if marker in _START_OF_FRAME:
            return int.from_bytes(segment[7:9], "big"), int.from_bytes(segment[5:7], "big")
        if marker == 0xFF:
            at += 1  # a filling byte
        elif marker in _WITHOUT_LENGTH:
            at += 2
        elif marker in _WITHOUT_SEQUEL:
            return None
        else:
            at += 2 + int.from_bytes(segment[2:4], "big")
    return None


_FORMATS: tuple[tuple[bytes, Callable[[bytes, str], Size | None]], ...] = (
    (b"\x89PNG\r\n\x1a\n", _png),
    (b"\xff\xd8", _jpeg),
    (b"GIF8", _gif),
    (b"RIFF", _webp),
)
