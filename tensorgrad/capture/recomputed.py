"""What is cheap to compute again: dropped after the forward pass, and computed anew where the backward pass needs it.

The result of a norm is as large as its input, takes one pass over it, and is kept for the gradients of the layer that
follows. Its input is kept anyway, for the norm's own gradients. So where such results lie in memory while a step holds
the most, they need not. The same kernel on the same arrays leaves the same bits.
"""

from __future__ import annotations

import re
from math import prod
from typing import NamedTuple

import numpy as np

from tensorgrad.capture.launches import VIEW, Launch, Launches
from tensorgrad.capture.lifetimes import VARIABLE
from tensorgrad.storage.cpu import CPUStorage

CHEAP = ("layer_norm", "rms_norm")
SMALLEST = 1 << 16  # bytes of a result that is worth it
_ARRAY = re.compile(r"\b(?:a|v|v_in)\d+\b")
_OF_GRADIENT = re.compile(r"(?:(v\d+) = )?t\d+\._grad\b")  # begins the text of what reads or sets a leaf's gradient


class _Repeat(NamedTuple):
    """A launch to repeat, the one before which that is done, and the result that is used from there on."""

    launch: Launch
    before: int
    result: str


class _Program:
    """The launches, and what is known about their arrays.

    Attributes:
        outside: array from outside -> the array itself.
        made: array -> the launch that makes it.
        wholes: view -> what it is a view of.
        uses: array -> the numbers of the launches that use it, or a view of it; the number after the last for the end.
        sizes: array -> its bytes, where they are known.
        most: the number of the launch at which most bytes are held.
        gradients: the names of leaves' gradients.
    """

    def __init__(self, launches: Launches, tail: str) -> None:
        self.launches = launches.launches
        self.outside = {name: value for name, value in launches.values.items() if value.__class__ is np.ndarray}
        self.made = {name: launch for launch in self.launches for name in launch.results}
        self.wholes: dict[str, list[str]] = {}
        self.uses = self._uses(tail)
        self.sizes: dict[str, int] = {}
        for node, name in launches.of.items():
            array = getattr(node.meta.get("val"), "_array", None)
            if isinstance(name, str) and array is not None:
                self.sizes[name] = prod(array.shape) * array.dtype.itemsize
        self.most = self._most()
        found = (_OF_GRADIENT.match(launch.text) for launch in self.launches)
        self.gradients = {match[1] for match in found if match and match[1]}

    def _uses(self, tail: str) -> dict[str, list[int]]:
        uses: dict[str, list[int]] = {}
        for i, launch in enumerate(self.launches):
            names = [name for name in self._arrays(launch.text) if name not in launch.results]
            for name in names:
                uses.setdefault(name, []).append(i)
            if launch.of == VIEW:
                self.wholes |= dict.fromkeys(launch.results, names)
        for name in self._arrays(tail):
            uses.setdefault(name, []).append(len(self.launches))
        return uses

    def _arrays(self, text: str) -> list[str]:
        """The names of arrays in a text, and of those that they are views of."""
        names = _ARRAY.findall(text)
        return names + [whole for name in names for whole in self.wholes.get(name, ())]

    def _most(self) -> int:
        change = [0] * (len(self.launches) + 2)
        for i, launch in enumerate(self.launches):
            for name in launch.results if launch.of != VIEW else ():
                change[i] += self.sizes.get(name, 0)
                change[max(self.uses.get(name, [i])) + 1] -= self.sizes.get(name, 0)
        held, most, number = 0, -1, 0
        for i in range(len(self.launches)):
            held += change[i]
            if held > most:
                most, number = held, i
        return number

    def repeat(self, i: int) -> _Repeat | None:
        """How a launch is repeated, if it can be, and if that frees memory while most is held."""
        launch = self.launches[i]
        if launch.of not in CHEAP or i >= self.most:
            return None
        result = launch.results[0]
        using = self.uses.get(result, [])
        late = [n for n in using if n > self.most]
        if not late or late[-1] == len(self.launches) or self.most in using or self.sizes.get(result, 0) < SMALLEST:
            return None
        if any(self.launches[n].of in ("", VIEW) for n in using):
            return None
        inputs = {name for argument in launch.arguments for name in _ARRAY.findall(argument)}
        if not all(self._kept(name, late[0]) for name in inputs):
            return None
        if any(self._may_write(n, inputs, n > i) for n in range(late[0])):
            return None
        return _Repeat(launch, late[0], result)

    def _kept(self, name: str, number: int) -> bool:
        """Whether an array is from outside, or one that an op made and that is in memory at a launch anyway."""
        if VARIABLE.fullmatch(name) is None:
            return True
        launch = self.made.get(name)
        made = launch is not None and launch.of not in ("", VIEW, *CHEAP)
        return made and any(n >= number for n in self.uses.get(name, ()))

    def _shares(self, inputs: set[str], given: set[str]) -> bool:
        """Whether one of these arrays is one of those, or lies in its memory."""
        ours, theirs = ([self.outside[name] for name in names if name in self.outside] for names in (inputs, given))
        return not inputs.isdisjoint(given) or any(np.may_share_memory(a, b) for a in ours for b in theirs)

    def _may_write(self, number: int, inputs: set[str], after: bool) -> bool:
        """Whether a launch `after` an op may change one of its inputs, or any launch makes one a leaf's gradient.

        Ops do not, nor what makes memory; samplers and the like at most what they are given. What is written to is
        memory made for that, or gradients.
        """
        launch = self.launches[number]
        if launch.of or (launch.plain and launch.results):
            return False
        if _OF_GRADIENT.match(launch.text):
            return not inputs.isdisjoint(self._arrays(launch.text))
        if launch.results:
            return after and self._shares(inputs, {*self._arrays(launch.text)})
        if launch.function in (CPUStorage.write, CPUStorage.add_to):
            target = launch.arguments[0]
            return after and target not in self.gradients and not (target in self.made and self.made[target].plain)
        return after


def recomputed(launches: Launches, tail: str) -> list[Launch]:
    """The launches, some of them twice. `tail` is the text that follows."""
    found = launches.launches
    if not any(launch.of in CHEAP for launch in found):
        return found
    program = _Program(launches, tail)
    again: dict[int, list[Launch]] = {}  # before which launch
    renamed: dict[str, tuple[int, str]] = {}  # a result -> from which launch on it has which other name
    for repeat in filter(None, map(program.repeat, range(len(found)))):
        names = {name: launches.fresh() for name in repeat.launch.results}
        text = VARIABLE.sub(lambda match, names=names: names.get(match[0], match[0]), repeat.launch.text)  # type: ignore[misc]
        copy = repeat.launch._replace(name=f"{repeat.launch.name}_again", results=tuple(names.values()), text=text)
        again.setdefault(repeat.before, []).append(copy)
        renamed[repeat.result] = repeat.before, names[repeat.result]
    result: list[Launch] = []
    for i, launch in enumerate(found):
        now = {name: other for name, (since, other) in renamed.items() if i >= since and name in launch.text}
        if now:
            texts = [VARIABLE.sub(lambda match, now=now: now.get(match[0], match[0]), text)  # type: ignore[misc]
                     for text in (launch.text, *launch.arguments)]  # fmt: skip
            launch = launch._replace(text=texts[0], arguments=tuple(texts[1:]))
        result += [*again.get(i, ()), launch]
    return result
