"""Inputs that break stores: contents, keys, scopes and references, each with the mistake that it finds."""

from haybaler.stores.names import encode_name

TEXTS: dict[str, str] = {
    "empty": "",
    "line ends": "unix\nwindows\r\nold mac\rend\r\n",
    "only a line end": "\r\n",
    "control characters": "nul\x00 bell\x07 escape\x1b[31m backspace\x08",
    "byte order mark": "\ufeffnot removed",
    "lone surrogates": "\ud800 high, \udfff low",
    "surrogates the wrong way round": "\ude00\ud83d",
    "beyond the basic plane": "😀 👩‍👩‍👧‍👦 \U00020000",
    "scripts": "中文 العربية ไทย हिन्दी עברית",
    "composed and decomposed": "\u00e9 e\u0301",
    "separators of lines and paragraphs": "a\u2028b\u2029c\x85d\x0be",
    "looks like base64": "aGVsbG8=",
    "looks like JSON": '{"type": "bytes", "data": "00"}',
    "long": "0123456789abcdef" * 20_000,
    "long and wide": "é中😀" * 20_000,
}

BYTES: dict[str, bytes] = {
    "empty": b"",
    "valid UTF-8": "<svg>é</svg>".encode(),
    "ASCII": b"a,b\r\n1,2\r\n",
    "not UTF-8": b"\xff\xfe\x00\x80",
    "every byte": bytes(range(256)),
    "surrogates in UTF-8": b"\xed\xa0\x80",
    "long": bytes(range(256)) * 1_200,
}

# Pairwise different, and so must their entries be.
KEYS: tuple[str, ...] = (
    "",
    ".",
    "..",
    "../../../../etc/passwd",
    "/etc/passwd",
    "a/b",
    "a//b",
    "a/./b",
    "a/../b",
    "a\\b",
    "..\\..\\windows",
    "c:d",
    "C:\\d",
    "a",
    "A",
    "a.txt",
    "a.TXT",
    "a.",
    "a ",
    " a",
    "a\n",
    "a\r",
    "a\x00",
    "a\x00b",
    "con",
    "CON",
    "nul.txt",
    "com1.json",
    "lpt9",
    "-rf",
    "~",
    "~root",
    "$HOME",
    "%2e%2e%2f",
    "a%2fb",
    "a+b",
    "a b",
    "*",
    "?",
    "[a]",
    "{a}",
    "a:b",
    "a::b",
    "@a",
    "@a/b",
    ".hidden",
    "\u00e9",
    "e\u0301",
    "ß",
    "ss",
    "SS",
    "İ",
    "i\u0307",
    "K",  # the sign for kelvin, whose lower case is an ordinary k
    "k",
    "😀",
    "中文工具",
    "\ud800",
    "\udfff",
    "\u202etxt.exe",
    "mcp.server/tool name?*",
    "x" * 80,
    "x" * 81,
    "x" * 255,
    "x" * 10_000,
    "x" * 10_001,
    "x" * 9_999 + "y",
    "é" * 10_000,
    encode_name("A"),  # looks like a name derived by hashing
    encode_name(encode_name("A")),
)

SCOPES: tuple[str, ...] = ("", ".", "..", "../a", "a", "A", "/a", "a/", "a\x00", "a\n", "@a", "con", "é", "x" * 10_000)


def hostile_references(reference: str) -> list[str]:
    """
    Return what a model or an attacker could make of a reference.

    :param reference: A reference of the store.
    :returns: Strings that are no references of the store.
    """
    return [
        "",
        ".",
        "..",
        "/",
        "/etc/passwd",
        "../" + reference,
        reference + "/",
        reference + "/..",
        reference + "/../" + reference.rpartition("/")[2],
        reference + "\n",
        reference + "\x00",
        reference + " ",
        " " + reference,
        reference + "?x",
        reference + "*",
        reference.upper(),
        reference + "/@a/b",
        reference * 100,
        "\ud800",
    ]
