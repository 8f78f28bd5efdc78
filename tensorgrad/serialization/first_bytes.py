"""What a file is that is not a checkpoint, from its first bytes."""

from __future__ import annotations

LENGTH = 512  # bytes that are looked at

# How a file begins, and what it then is.
BEGINNINGS: dict[bytes, str] = {
    b"version https://git-lfs": "a pointer of Git LFS, in whose place the file itself is still to be fetched",
    b"\x93NUMPY": "a NumPy array (numpy.load reads it)",
    b"GGUF": "a GGUF file (tensorgrad.gguf.load reads it)",
    b"\x89HDF\r\n\x1a\n": "an HDF5 file, as Keras writes",
    b"\x1f\x8b": "compressed by gzip",
    b"BZh": "compressed by bzip2",
    b"\xfd7zXZ\0": "compressed by xz",
    b"(\xb5/\xfd": "compressed by zstd",
    b"7z\xbc\xaf\x27\x1c": "a 7z archive",
    b"Rar!": "a RAR archive",
    b"\x89PNG": "a PNG picture",
    b"\xff\xd8\xff": "a JPEG picture",
    b"GIF8": "a GIF picture",
    b"%PDF": "a PDF document",
    b"RIFF": "a RIFF file, such as a WAV sound",
    b"PAR1": "a Parquet file",
    b"SQLite format 3": "an SQLite database",
    b"\x7fELF": "a program",
    b"MZ": "a program",
    b"#!": "a script",
    b"<": "a page in HTML or XML, perhaps of a server that wanted a login",
    b"{": "text in JSON",
    b"[": "text in JSON",
}


def kind(head: bytes) -> str | None:
    """Returns what a file is that begins so; None if it may be a checkpoint in PyTorch's older format.

    >>> from tensorgrad.serialization.first_bytes import kind
    >>> kind(b"GIF89a")
    'a GIF picture'
    """
    length = int.from_bytes(head[:8], "little")
    if head[8:10] == b'{"' and 2 <= length < 1 << 40:
        return "a safetensors file (the package safetensors, or tensorgrad.serialization.safetensors, reads it)"
    start = head.lstrip()  # of a text; no other beginning has spaces before it
    found = next((what for begin, what in BEGINNINGS.items() if start.startswith(begin)), None)
    if found is None and len(start) > 16 and all(32 <= byte < 127 or byte in b"\t\r\n" for byte in head):
        # The first numbers of the older format written by the text protocol of pickles are text, too.
        return None if start[:1] in b"LIF" and start[1:9].isdigit() else "a text"
    return found
