"""Keys, scopes and prefixes of stores: whatever an application makes of the names of its users and runs."""

from tests.hostile.case import corpus

from haybaler.stores.names import encode_name

KEYS = corpus(
    {
        "escape from a folder": {
            "up, escaped": "%2e%2e%2f%2e%2e%2fetc",
            "up, twice escaped": "%252e%252e%252f",
            "up, overlong": "\u2025\u2215etc",
            "up, with semicolon": "..;/x",
            "mixed slashes": "..\\/..\\/x",
            "many slashes": "/" * 300,
            "many ups": "../" * 3_000,
            "URL": "file:///etc/passwd",
            "root by device": "//?/C:/x",
            "proc": "/proc/self/environ",
        },
        "another entry of the store": {
            "a scope in the path": "@victim/secret",
            "a scope, escaped": "%40victim%2fsecret",
            "its derived name": encode_name("Secret!"),
            "its derived name with a suffix": encode_name("Secret!") + ".txt",
            "its derived name in upper case": encode_name("Secret!").upper(),
            "a seal": "secret.t.6.6.0123456789abcdef.1f",
            "the folder of the seals": ".seals/secret.t.6.6.0123456789abcdef.1f",
            "an unfinished file": ".haybaler-tmp-0123456789abcdef-0",
            "a stage": "secret#0123456789abcdef",
            "a stage with a tag": "{secret}#0123456789abcdef",
        },
        "commands of a server": {
            "new command": "x\r\nFLUSHALL\r\n",
            "bulk string": "$-1\r\n*1\r\n$8\r\nFLUSHALL\r\n",
            "header": "x\r\nX-Amz-Acl: public-read\r\n\r\n",
            "query": "x?acl&delete&uploads",
            "fragment": "x#y",
            "XML": "x</Key></Object><Object><Key>secret",
            "entity": "&lt;&#0;&xxe;",
            "Lua": "' .. redis.call('flushall') .. '",
        },
        "hash tags of a cluster": {
            "tag": "{victim}",
            "empty tag": "{}x",
            "open": "{x",
            "closed": "x}",
            "two": "{a}{b}",
            "nested": "{{a}}",
        },
        "patterns": {"star": "a*", "class": "[!a]", "escape": "\\*", "range": "[a-", "alternatives": "{a,b}"},
        "folding of case and form": {
            "sharp s": "stra\u00dfe",
            "dotless i": "\u0131",
            "long s": "\u017f",
            "ligature": "\ufb01le",
            "Angstrom": "\u212b",
            "ring above": "A\u030a",
            "full width": "\uff41\uff42",
        },
        "a key that ends early, or is not shown": {
            "NUL before the suffix": "x\x00.txt",
            "bell": "x\x07",
            "right to left": "x\u202e",
            "byte order mark": "\ufeffx",
            "hidden": "x\u3164",
            "surrogate pair in two": "\ud83d\ude00",
        },
        "bounds on length": {
            "1,024, S3's limit": "k" * 1_024,
            "1,025": "k" * 1_025,
            "10,000 with a suffix": "k" * 10_000 + ".json",
            "10,000 wide": "\U0001f600" * 10_000,
            "a million": "k" * 1_000_000,
        },
    }
)

SCOPES = corpus(
    {
        "the scope of a victim": {
            "beside": "victim2",
            "shorter": "victi",
            "up": "x/../victim",
            "up, escaped": "x%2f..%2fvictim",
            "marked": "@victim",
            "marked twice": "@@victim",
            "upper case": "VICTIM",
            "with a blank": "victim ",
            "with a dot": "victim.",
            "with a NUL": "victim\x00",
            "with a line break": "victim\n",
            "with an empty part": "/victim",
            "with a wide slash": "x\uff0fvictim",
            "with a back slash": "x\\victim",
            "hidden difference": "victim\u200b",
            "Cyrillic": "v\u0456ctim",
            "derived name": encode_name("Victim"),
        },
        "patterns": {
            "begins like": "v*",
            "one": "?ictim",
            "class": "[v]ictim",
            "not": "[^x]ictim",
            "range": "[a-z]ictim",
            "escaped": "\\victim",
            "open class": "[victim",
            "alternatives": "{victim,x}",
        },
        "hash tags of a cluster": {"tag": "{victim}", "empty": "{}", "close": "}victim{", "stage": "{victim}#00"},
        "names of the stores' own": {
            "device": "aux",
            "list of a server": "victim:index",
        },
        "bounds on length": {"10,000": "s" * 10_000, "10,000 wide": "\u4e2d" * 10_000},
    }
)

# More parts than a reference has room for.
TOO_DEEP = corpus({"bounds on length": {"300 parts": "a/" * 300, "10,000 slashes": "/" * 10_000}})

# Each becomes a part of every key of a server: what a SCAN pattern must not make more of.
PREFIXES = corpus(
    {
        "patterns": {
            "star": "*",
            "question mark": "?",
            "class": "[a-z]",
            "negated class": "[^a]",
            "open class": "[a",
            "closed class": "a]",
            "escape": "\\",
            "escaped star": "\\*",
        },
        "hash tags of a cluster": {"tag": "{tag}", "tag behind": "a{tag}b"},
        "another store's prefix": {"colon": "a:b", "hash": "a#b"},
    }
)

# What a store must not take from a serialized form.
SERIALIZED_SCOPES = corpus(
    {
        "escape through a serialized form": {
            "up": ["@.."],
            "slash": ["@a/../.."],
            "absolute": ["/etc"],
            "without mark": ["victim"],
            "line break": ["@a\n"],
            "upper case": ["@A"],
            "number": [7],
            "none": [None],
            "text": "@a",
            "mapping": {"@a": 1},
            "deep": ["@a"] * 500,
            "long": ["@" + "a" * 500],
        }
    }
)
