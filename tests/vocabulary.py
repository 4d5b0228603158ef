"""tiktoken's vocabularies, from a package that ships them: no test and no benchmark downloads one."""

import gzip
from importlib.metadata import distribution
from pathlib import Path
from uuid import uuid4

# tiktoken looks for a file named after the SHA-1 of the address that it would download from, and checks its content.
NAMES = {
    "cl100k_base": "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
    "o200k_base": "fb374d419588a4632f3f557e76b4b70aebbca790",
}


def fill_vocabulary(folder: Path) -> Path:
    """
    Put the vocabularies of cl100k_base and o200k_base into a folder, for `TIKTOKEN_CACHE_DIR`.

    Several processes may fill one folder at once. It is never a folder of the package: tiktoken deletes what it does
    not trust.

    :param folder: The folder; made if need be.
    :returns: The same folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for encoding, name in NAMES.items():
        if not (folder / name).exists():
            shipped = distribution("bpe-openai").locate_file(f"bpe_openai/data/{encoding}.tiktoken.gz")
            part = folder / f"{name}.{uuid4().hex}"
            part.write_bytes(gzip.decompress(Path(str(shipped)).read_bytes()))
            part.replace(folder / name)
    return folder
