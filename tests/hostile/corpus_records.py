"""What stands beside a content and says how long it is: headers, metadata and seals that lie."""

import struct
from collections.abc import Callable

from tests.hostile.case import Case, corpus
from xxhash import xxh3_64_intdigest

GIB = 2**30
DATA = b"0123456789" * 30_000  # more than is fetched at once for a page, so that sizes are believed

# From a key to the value that stands under it.
Forge = Callable[[bytes], bytes]


def header(key: bytes, size: int, length: int, *, kind: bytes = b"t", magic: bytes = b"hb1") -> bytes:
    tag = xxh3_64_intdigest(key)
    return struct.pack(">3scQQQQ", magic, kind, tag, xxh3_64_intdigest(DATA, tag), size, length)


N = len(DATA)

REDIS: tuple[Case[Forge], ...] = corpus(
    {
        "claims of length": {
            "1 GB": lambda key: header(key, GIB, GIB) + DATA,
            "1 GB of bytes": lambda key: header(key, GIB, GIB, kind=b"b") + DATA,
            "64 bits": lambda key: header(key, 2**64 - 1, 2**64 - 1) + DATA,
            "one more": lambda key: header(key, N + 1, N + 1) + DATA,
            "one less": lambda key: header(key, N - 1, N - 1) + DATA,
            "nothing": lambda key: header(key, 0, 0) + DATA,
            "a few": lambda key: header(key, 10, 10) + DATA,
            "1 GB, and nothing there": lambda key: header(key, GIB, GIB),
            "fewer bytes than characters": lambda key: header(key, N, GIB) + DATA,
            "too wide": lambda key: header(key, N, 1) + DATA,
            "bytes that are wide": lambda key: header(key, N, N // 2, kind=b"b") + DATA,
        },
        "the header": {
            "none": lambda key: DATA,
            "cut": lambda key: header(key, N, N)[:-1],
            "other kind": lambda key: header(key, N, N, kind=b"x") + DATA,
            "other layout": lambda key: header(key, N, N, magic=b"hb2") + DATA,
            "of another key": lambda key: header(key + b"x", N, N) + DATA,
            "twice": lambda key: header(key, N, N) * 2 + DATA,
            "checksum of something else": lambda key: header(key, N, N) + DATA[1:] + DATA[:1],
        },
    }
)

S3 = corpus(
    {
        "claims of length": {
            "1 GB": f"t.{GIB}.{GIB}.0",
            "1 GB of bytes": f"b.{GIB}.{GIB}.0123456789abcdef",
            "5,000 digits": f"t.{'9' * 1_500}.{N}.0123456789abcdef",
            "one more": f"t.{N + 1}.{N + 1}.0123456789abcdef",
            "one less": f"t.{N - 1}.{N - 1}.0123456789abcdef",
            "nothing": "t.0.0.0123456789abcdef",
            "negative": f"t.-{N}.-{N}.0123456789abcdef",
            "fewer bytes than characters": f"t.{N}.{GIB}.0123456789abcdef",
            "too wide": f"t.{N}.1.0123456789abcdef",
            "bytes that are wide": f"b.{N}.{N // 2}.0123456789abcdef",
        },
        "the form": {
            "none": "",
            "dots": "....",
            "other kind": f"x.{N}.{N}.0123456789abcdef",
            "underscores": f"t.300_000.{N}.0123456789abcdef",
            "sign": f"t.+{N}.{N}.0123456789abcdef",
            "blank": f"t. {N}.{N}.0123456789abcdef",
            "hexadecimal": f"t.{N}.{N}.0x0123456789abcdef",
            "more fields": f"t.{N}.{N}.0123456789abcdef.x",
            "long checksum": f"t.{N}.{N}.{'0' * 30}",
        },
    }
)

# From the name of an entry, the checksum and the inode of its file, to the name of a seal.
SEALS: tuple[Case[Callable[[str, int, int], str]], ...] = corpus(
    {
        "claims of length": {
            "1 GB": lambda name, checksum, inode: f"{name}.t.{GIB}.{GIB}.{checksum:016x}.{inode:x}",
            "1 GB of characters": lambda name, checksum, inode: f"{name}.t.{N}.{GIB}.{checksum:016x}.{inode:x}",
            "too wide": lambda name, checksum, inode: f"{name}.t.{N}.1.{checksum:016x}.{inode:x}",
            "bytes that are wide": lambda name, checksum, inode: f"{name}.b.{N}.{N // 2}.{checksum:016x}.{inode:x}",
            "nothing": lambda name, checksum, inode: f"{name}.t.0.0.{checksum:016x}.{inode:x}",
            "negative": lambda name, checksum, inode: f"{name}.t.-{N}.-{N}.{checksum:016x}.{inode:x}",
            "70 digits": lambda name, checksum, inode: f"{name}.t.{'9' * 70}.{'9' * 70}.{checksum:016x}.{inode:x}",
        },
        "the form": {
            "underscores": lambda name, checksum, inode: f"{name}.t.300_000.{N}.{checksum:016x}.{inode:x}",
            "blank": lambda name, checksum, inode: f"{name}.t. {N}.{N}.{checksum:016x}.{inode:x}",
            "upper case": lambda name, checksum, inode: f"{name}.t.{N}.{N}.{checksum:016X}.{inode:X}ABC",
            "other kind": lambda name, checksum, inode: f"{name}.x.{N}.{N}.{checksum:016x}.{inode:x}",
            "another file": lambda name, checksum, inode: f"{name}.t.{N}.{N}.{checksum ^ 1:016x}.{inode:x}",
        },
    }
)
