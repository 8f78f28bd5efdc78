"""Formats values from files for messages: always short, and cheap for values of any size."""

from __future__ import annotations

from typing import Any

MOST = 40  # characters of a string


def described(value: Any, inside: bool = False) -> str:
    """Describes a value in a message. Never uses its `repr`, which has no end for lists that contain each other.

    >>> from tensorgrad.serialization.describe import described
    >>> described("x" * 100), described([1, [2], {}]), described(10**100)
    ("'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx'...", '[1, a list, a dict]', 'an int of 333 bits')
    """
    kind = type(value)
    if kind in (str, bytes):
        return repr(value[:MOST]) + "..." * (len(value) > MOST)
    if kind is int and value.bit_length() > 64:
        return f"an int of {value.bit_length()} bits"
    if value is None or kind in (int, bool, float, complex):
        return repr(value)
    if kind in (tuple, list) and not inside:
        items = [described(item, True) for item in value[:4]] + ["..."] * (len(value) > 4)
        text = ", ".join(items) + "," * (kind is tuple and len(value) == 1)
        return f"({text})" if kind is tuple else f"[{text}]"
    name = (value if isinstance(value, type) else kind).__name__
    article = "the class" if isinstance(value, type) else "an" if name[:1] in "aeiouAEIOU" else "a"
    return f"{article} {name}"


def problem(error: BaseException) -> str:
    """Describes an exception without the values that some contain (such as the key of a KeyError)."""
    text = next((text for text in error.args if type(text) is str), "")
    return f"{type(error).__name__}: {text[:300]}"
