"""Chains: kernels of a plan that follow each other, run by machine code as one list.

A plan runs once by its texts, with what it launches listened to (capture/links.py). An op that is a link needs no
Python: its launches, with the addresses of the arrays put in, do all of it (kernels/compiled/runtime/launch.py). What
such ops pass to each other lies in one arena, planned by lifetimes; what Python sees, and what is large, are arrays of
their own, made before and dropped after as ever.

A chain first compares all its arrays with those that it was made of (dtype, shape, strides, flags). If one differs, or
a kernel fails, its ops are called one by one: a chain only writes memory that nothing else knows, so that can be
repeated.
"""

from __future__ import annotations

import itertools
import math
import re
from typing import Any

import numpy as np

from tensorgrad.capture.launches import Launch
from tensorgrad.capture.lifetimes import VARIABLE
from tensorgrad.capture.links import BYTE, Link, Links, Memory, Piece, bounds, full_of_nan
from tensorgrad.dispatch.codegen import function_of
from tensorgrad.kernels.compiled.runtime import launch as compiled
from tensorgrad.kernels.compiled.runtime.launch import address
from tensorgrad.kernels.compiled.runtime.thread_pool import WAKING
from tensorgrad.storage import fresh

_LARGE = 1 << 16  # bytes of an array that is not in the arena
_MOST = 2048  # numbers of a chain, about: machine code has a copy on its stack
_LINE = 64


class Chains(Links):
    """Writes a plan's text anew, with chains in the place of the links.

    Attributes:
        names: what the text refers to.
        numbers: the chain of each launch that is in one, by its name.
    """

    def __init__(self, names: dict[str, Any], outside: dict[str, np.ndarray]) -> None:
        """`names` are those of the plan's texts; `outside` the arrays that it is given."""
        super().__init__(outside)
        self.names = dict(names)
        self.numbers: dict[str, int] = {}
        self._kept: list[Any] = []
        self._count = 0
        self._arena = 0

    def found(self) -> bool:
        """Whether there is a chain."""
        return self.possible and any(isinstance(step, Link) and step.runs for step in self.steps)

    @property
    def pure(self) -> bool:
        """Whether none of it runs an op on tensors."""
        return all(isinstance(step, Link) or step.plain for step in self.steps)

    # --- writing the text ---

    def text(self, tail: str) -> list[str]:
        """The lines in the place of the launches. `tail` is the text that follows."""
        steps = self._without_seeds(tail)
        seen = self._seen_by_python(steps, tail)
        self._number(steps)
        self._place(seen)
        self.names |= {"replay": compiled.replay(), **MAKERS, "kept": [self._kept, self._constants], "u1": BYTE}
        lines = [f"arena = {_block_of(self._arena)}"] if self._arena else []
        chain: list[Link] = []
        number = 0
        for i, step in enumerate(steps):
            if isinstance(step, Launch):
                lines += self._chain(chain, seen, steps, i)
                chain = []
                lines.append(step.text)
                continue
            if not step.runs:
                if any(name in seen for name in step.launch.results):
                    lines += self._chain(chain, seen, steps, i)
                    chain = []
                    lines.append(step.launch.text)
                else:
                    chain.append(step)
                continue
            chain.append(step)
            large = [m for m in self._own if m.place < 0 and m.high - m.low >= _LARGE]
            full = sum(len(numbers) for link in chain for _, _, numbers in link.runs) > _MOST
            if step.checked or full or any(number in (m.first, m.last) for m in large):
                lines += self._chain(chain, seen, steps, i + 1)
                chain = []
            number += 1
        return lines + self._chain(chain, seen, steps, len(steps))

    def _without_seeds(self, tail: str) -> list[Any]:
        """The steps without those that make a gradient of ones, where only chains use it: it never changes."""
        steps = list(self.steps)
        for i, (made, filled) in enumerate(itertools.pairwise(steps)):
            if not (isinstance(made, Launch) and isinstance(filled, Launch)):
                continue
            texts = [s.text for s in steps if isinstance(s, Launch) and s is not made and s is not filled]
            name = made.results[0] if made.results else ""
            match = re.fullmatch(r"f\d+\((v\d+), (-?\d+)\)", filled.text)
            if match and match[1] == name and made.name.startswith("empty") and filled.name.startswith("write"):
                uses = VARIABLE.findall("\n".join([*texts, tail]))
                views = [s for s in steps if isinstance(s, Link) and not s.runs]
                uses += [n for s in views for n in VARIABLE.findall(s.launch.text)]
                memory = next((m for m in self._given if m.text == name), None)
                if name not in uses and memory is not None:
                    memory.text = f"seed{i}"
                    self.names[name] = self.names[memory.text] = np.array(memory.array)
                    return [*steps[:i], *steps[i + 2 :]]
        return steps

    def _seen_by_python(self, steps: list[Any], tail: str) -> set[str]:
        """The names whose arrays Python needs."""
        seen = set(VARIABLE.findall(tail))
        for step in reversed(steps):
            if isinstance(step, Launch):
                seen.update(VARIABLE.findall(step.text))
            elif step.checked:
                seen.add(step.checked)
            elif not step.runs and any(name in seen for name in step.launch.results):
                seen.update(VARIABLE.findall(step.launch.text))
        return seen

    def _number(self, steps: list[Any]) -> None:
        """Finds the first and last launch that use each memory."""
        number = 0
        for step in steps:
            if isinstance(step, Link) and step.runs:
                used = [p.memory for p in step.pieces.values()] + [*step.scratch]
                used += [m for _, _, ns in step.runs for a in ns if (m := self._memory(a)) is not None]
                # (What it is called with one by one may be more than what its launches read.)
                named = [self._pieces.get(name) for name in VARIABLE.findall(step.launch.text)]
                used += [piece.memory for piece in named if piece is not None]
                for memory in used:
                    memory.first, memory.last = min(memory.first, number), max(memory.last, number)
                number += 1

    def _memory(self, value: Any) -> Memory | None:
        return self._find(value) if value.__class__ is np.ndarray and value.size else None

    def _place(self, seen: set[str]) -> None:
        """Gives each memory that only chains use a place in the arena, where nothing is that is used at that time."""
        known = {id(p.memory) for name, p in self._pieces.items() if name in seen}
        placed: list[Memory] = []
        inside = [m for m in self._own if id(m) not in known and m.high - m.low < _LARGE]
        for memory in sorted(inside, key=lambda m: m.low - m.high):
            size, at = memory.high - memory.low, 0
            beside = [m for m in placed if m.first <= memory.last and memory.first <= m.last]
            for other in sorted(beside, key=lambda m: m.place):
                if at + size <= other.place:
                    break
                at = max(at, -(-(other.place + other.high - other.low) // _LINE) * _LINE)
            memory.place = at
            placed.append(memory)
            self._arena = max(self._arena, at + size)

    def _chain(self, links: list[Link], seen: set[str], steps: list[Any], after: int) -> list[str]:
        """The lines of one chain."""
        if not any(link.runs for link in links):
            return []
        self._count += 1
        number = max(self.numbers.values(), default=0) + 1
        self.numbers |= {link.launch.name: number for link in links}
        lines: list[str] = []
        names = {name: piece for link in links if link.runs for name, piece in link.pieces.items()}
        made = {id(p.memory): p.memory for p in names.values()}
        scratch = [memory for link in links for memory in link.scratch]
        for memory in (*made.values(), *scratch):
            if memory.place < 0:
                lines += self._allocation(memory, {n: p for n, p in names.items() if p.memory is memory}, seen)
        texts: dict[str, np.ndarray] = {}  # what the chain is given, by its expression
        launches = []
        for link in links:
            for kernel, length, numbers in link.runs:
                launches.append((kernel, length, [self._number_of(n, texts, link.number) for n in numbers]))
        brief = sum(link.elements for link in links) < WAKING
        listed = compiled.listed(list(texts.values()), launches, brief)
        self._kept += [listed, *[a.dtype for a in texts.values()]]
        key = f"L{self._count}"
        self.names[key] = address(listed)
        given = "".join(f", {text}" for text in texts)
        checks = [f" and {link.checked}.item() < inf" for link in links if link.checked]
        self.names["inf"] = math.inf
        test = f"if not (replay({key}{given}){''.join(checks)}):" if checks else f"if not replay({key}{given}):"
        name, arguments = self._one_by_one(links, seen, steps, after)
        return [*lines, f"{test} {name}({', '.join(arguments)})"]

    def _number_of(self, value: Any, texts: dict[str, np.ndarray], step: int) -> Any:
        """A number of a launch of a step; for an array which of the chain's arrays it is in, and where."""
        if value.__class__ is not np.ndarray:
            return value
        if not value.size:
            self._kept.append(value)
            return address(value)
        memory: Any = self._find(value, before=step)
        if memory.place >= 0:
            text, array, start = "arena", np.empty(self._arena, BYTE), memory.low - memory.place
        else:
            text, array, start = memory.text, memory.array, memory.start
        texts.setdefault(text, array)
        return list(texts).index(text), address(value) - start

    def _allocation(self, memory: Memory, names: dict[str, Piece], seen: set[str]) -> list[str]:
        """The lines that make memory which is not in the arena, and the arrays in it that Python sees."""
        memory.start = memory.low
        for name, piece in names.items():
            array = piece.array
            like = fresh.empty(array.shape, array.dtype)
            if array.strides == like.strides and bounds(array) == (memory.low, memory.high):
                memory.text, memory.array = name, like
                dtype = f"d_{array.dtype.str[1:]}"
                self.names[dtype] = array.dtype
                maker = "small" if array.nbytes < _LARGE else "empty"
                lines = [f"{name} = {maker}({array.shape}, {dtype})"]
                break
        else:
            self._count += 1
            name, size = f"v{10**6 + self._count}", memory.high - memory.low
            memory.text, memory.array = name, np.empty(size, BYTE)
            lines = [f"{name} = {_block_of(size)}"]
        offset = 0
        for other, piece in names.items():
            if other != memory.text and other in seen:
                lines.append(f"{other} = {piece.made_of(memory.text, offset, self.names)}")
        return lines

    def _one_by_one(self, links: list[Link], seen: set[str], steps: list[Any], after: int) -> tuple[str, list[str]]:
        """Makes the function that calls the ops of a chain; returns its name and what it is given."""
        own = [name for link in links for name in link.launch.results]
        used = dict.fromkeys(n for link in links for n in re.findall(r"\b[a-z_]+\d+\b", link.launch.text))
        lines: list[str] = []
        given: dict[str, str] = {}  # parameter -> argument
        for name in used:
            if name in own or name not in self._pieces or name in seen:
                if name not in own and name not in self.names:
                    given[name] = name
                continue
            piece = self._pieces[name]
            place, text = self._where(piece.memory, given)
            lines.append(f"{name} = {piece.made_of(text, place, self.names)}")
        lines += [link.launch.text for link in links]
        for name in own:
            if name not in self._pieces:
                continue
            piece = self._pieces[name]
            runs = any(link.runs and name in link.pieces for link in links)
            if not runs:
                continue
            if name in seen:
                given[f"to_{name}"] = name
                lines.append(f"to_{name}[...] = {name}")
            else:
                place, text = self._where(piece.memory, given)
                lines.append(f"{piece.made_of(text, place, self.names)}[...] = {name}")
        key = f"one_by_one{self._count}"
        text = "\n".join([f"def {key}({', '.join(given)}):", *(f"    {line}" for line in lines), ""])
        self.names[key] = function_of(text, dict(self.names), {"__name__": "tensorgrad.plan"}, key)
        return key, list(given.values())

    def _where(self, memory: Memory, given: dict[str, str]) -> tuple[int, str]:
        """Where memory begins in the bytes of what, which is added to the parameters."""
        text = "arena" if memory.place >= 0 else memory.text
        if text not in self.names:
            given["arena" if memory.place >= 0 else f"memory_of_{text}"] = text
        inside = memory.place if memory.place >= 0 else memory.low - memory.start
        name = text if text in self.names or memory.place >= 0 else f"memory_of_{text}"
        return inside, name


def block(size: int) -> np.ndarray:
    """Memory for a chain, in bytes."""
    return fresh.aligned(size, BYTE)


def _block_of(size: int) -> str:
    return f"small({size}, u1)" if size < _LARGE else f"block({size})"


# What makes memory, and the same for memory full of nan.
MAKERS: dict[str, Any] = {"small": np.empty, "empty": fresh.empty, "block": block}
FULL: dict[str, Any] = {name: lambda *how, make=make: full_of_nan(make(*how)) for name, make in MAKERS.items()}
