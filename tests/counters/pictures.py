"""Images of every format, made by hand: real ones where that is short, and headers where only the header matters."""

import base64
import struct
import zlib
from collections.abc import Iterable


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def png(width: int, height: int) -> bytes:
    """Return a whole PNG image, black."""
    return (
        b"\x89PNG\r\n\x1a\n"
        + _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0))
        + _chunk(b"IDAT", zlib.compress(bytes(1 + -(-width // 8)) * height))
        + _chunk(b"IEND", b"")
    )


def png_header(width: int, height: int) -> bytes:
    """Return the beginning of a PNG image, which claims a size."""
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def gif(width: int, height: int, *, frames: int = 1, version: bytes = b"GIF89a") -> bytes:
    """Return a GIF image; each frame is one pixel of the canvas."""
    frame = b"\x21\xf9\x04\0\x0a\0\0\0" + b"\x2c\0\0\0\0\x01\0\x01\0\0" + b"\x02\x02\x44\x01\0"
    return version + struct.pack("<HHBBB", width, height, 0x80, 0, 0) + b"\0\0\0\xff\xff\xff" + frame * frames + b"\x3b"


def segment(marker: int, data: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(data) + 2) + data


def frame(width: int, height: int, *, marker: int = 0xC0, components: int = 3) -> bytes:
    """Return the frame header of a JPEG image."""
    parts = b"".join(bytes([n, 0x11, 0]) for n in range(1, components + 1))
    return segment(marker, struct.pack(">BHHB", 8, height, width, components) + parts)


def jpeg(width: int, height: int, *, before: Iterable[bytes] = (), marker: int = 0xC0, components: int = 3) -> bytes:
    """
    Return a JPEG image with empty tables and a few bytes of image data.

    :param before: Further segments that stand before the frame.
    :param marker: The kind of frame: 0xC0 for baseline, 0xC2 for progressive.
    :param components: 1 for grey, 3 for color, 4 for CMYK.
    """
    jfif = segment(0xE0, b"JFIF\0\x01\x01\0\0\x01\0\x01\0\0")
    tables = segment(0xDB, bytes(65)) + segment(0xC4, bytes(17))
    scan = segment(0xDA, bytes(4 + 2 * components)) + bytes(40)
    return (
        b"\xff\xd8"
        + jfif
        + b"".join(before)
        + tables
        + frame(width, height, marker=marker, components=components)
        + scan
        + b"\xff\xd9"
    )


def exif(thumbnail: bytes) -> bytes:
    return segment(0xE1, b"Exif\0\0MM\0*\0\0\0\x08" + thumbnail)


def color_profile(size: int) -> list[bytes]:
    """Return a color profile of a number of bytes, which takes as many segments as it needs."""
    return [segment(0xE2, b"ICC_PROFILE\0" + bytes(min(65_000, size - at))) for at in range(0, size, 65_000)]


def webp(kind: bytes, data: bytes) -> bytes:
    chunk = kind + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", 4 + len(chunk)) + b"WEBP" + chunk


def webp_lossy(width: int, height: int, *, scaling: int = 0) -> bytes:
    sides = struct.pack("<HH", width | scaling << 14, height | scaling << 14)
    return webp(b"VP8 ", b"\x10\x02\0\x9d\x01\x2a" + sides + bytes(30))


def webp_lossless(width: int, height: int) -> bytes:
    return webp(b"VP8L", b"\x2f" + struct.pack("<I", width - 1 | (height - 1) << 14 | 1 << 28) + bytes(10))


def webp_extended(width: int, height: int) -> bytes:
    """Return the beginning of a WebP image with an animation or metadata."""
    sides = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return webp(b"VP8X", b"\x02\0\0\0" + sides)
