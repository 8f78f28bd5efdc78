"""How long the arrays of a plan live: each is dropped after the last launch that uses it."""

from __future__ import annotations

import re

VARIABLE = re.compile(r"\bv\d+\b")  # the name of an array in the text of a plan


def dropped(body: list[str], kept: str, variable: re.Pattern[str] = VARIABLE) -> list[str]:
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
