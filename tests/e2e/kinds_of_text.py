"""Texts of many kinds, for which characters and tokens go together in very different ways."""

import base64
import json
import random
import uuid
from collections.abc import Callable

import tiktoken

WORDS = ("network", "agent", "storage", "result", "under", "value", "energy", "report", "city", "people", "water")
CHINESE = "的一是在不了有和人这中大为上个国我以要他时来用们生到作地于出就分对成会可主发年动同工也能下过子说产种面而方后"
THAI = "กขคงจฉชซญดตถทธนบปผพฟมยรลวสหอะาิีึืุูเแโใไ่้"

Make = Callable[[random.Random, int], str]


def _code(source: random.Random, size: int) -> str:
    lines = [
        f"    if {source.choice(WORDS)}_{source.choice(WORDS)}({source.choice(WORDS)}=None):" for _ in range(size // 30)
    ]
    return "\n".join(lines)


def _html(source: random.Random, size: int) -> str:
    return "".join(f"<div>{' ' * source.randrange(60, 200)}{source.choice(WORDS)}</div>\n" for _ in range(size // 140))


KINDS: dict[str, Make] = {
    "prose": lambda source, size: " ".join(source.choice(WORDS) for _ in range(size // 6)),
    "code": _code,
    "chinese": lambda source, size: "".join(source.choice(CHINESE) for _ in range(size)),
    "thai": lambda source, size: "".join(source.choice(THAI) for _ in range(size)),
    "json": lambda source, size: json.dumps([source.random() for _ in range(size // 20)], separators=(",", ":")),
    "base64": lambda source, size: base64.b64encode(source.randbytes(size * 3 // 4)).decode(),
    "uuids": lambda source, size: ",".join(str(uuid.UUID(int=source.getrandbits(128))) for _ in range(size // 37)),
    "emoji": lambda source, size: "".join(chr(source.randrange(0x1F300, 0x1F5FF)) for _ in range(size)),
    "html": _html,
}


def text_of(kind: str, source: random.Random, tokens: int) -> str:
    """
    Make a text.

    :param kind: One of `KINDS`, or "mixture" for one of them by chance.
    :param source: Where chance comes from.
    :param tokens: About how many tokens it is to have.
    :returns: The text.
    """
    make = KINDS[source.choice(sorted(KINDS)) if kind == "mixture" else kind]
    sample = make(source, 2_000)
    characters_for_token = len(sample) / len(tiktoken.get_encoding("o200k_base").encode_ordinary(sample))
    return make(source, int(tokens * characters_for_token))
