"""How long the arrays of a plan live: each is dropped after the last launch that uses it."""

from __future__ import annotations

import re

_VARIABLE = re.compile(r"\bv\d+\b")


def dropped(body: list[str], kept: str, variable: re.Pattern[str] = _VARIABLE) -> list[str]:
    """The lines, with each variable deleted after the last line that uses it, unless `kept` does.

    >>> from tensorgrad.capture.lifetimes import dropped
    >>> dropped(["v1 = f()", "v2 = g(v1)"], "return v2")
    ['v1 = f()', 'v2 = g(v1)', 'del v1']
    """
    last: dict[str, int] = {}
    for i, line in enumerate(body):
        for name in variable.findall(line):
            last[name] = i
    for name in variable.findall(kept):
        last.pop(name, None)
    ends: dict[int, list[str]] = {}
    for name, i in last.items():
        ends.setdefault(i, []).append(name)
    lines = []
    for i, line in enumerate(body):
        lines.append(line)
        if i in ends:
            lines.append(f"del {', '.join(ends[i])}")
    return lines


def parts(texts: list[str]) -> dict[str, tuple[str, str]]:
    """Names for those of several results that are kept, so that the others are dropped: `v3[1]` -> (its name, `v3`).

    >>> from tensorgrad.capture.lifetimes import parts
    >>> parts(["v1", "v3[1]"])
    {'v3[1]': ('v3_1', 'v3')}
    """
    found = {}
    for text in texts:
        whole, bracket, index = text.partition("[")
        if bracket and _VARIABLE.fullmatch(whole):
            found[text] = f"{whole}_{index.removesuffix(']')}", whole
    return found
