"""Links: ops of a plan that machine code can run by itself, found by listening to what they launch.

An op is a link if its kernel's Python reads nothing but shapes, strides and dtypes (`TAKEN` lists such kernels), and if
its launches alone write its results. So an op is tried before it is taken: its launches run once more, in memory full
of nan, and have to leave the same bits. Arrays that a kernel makes for itself are memory like its results; those that
it keeps from call to call (tables of offsets, zeros in the place of a bias) are constants.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from tensorgrad.capture.launches import VIEW, Launch
from tensorgrad.dtypes import F32
from tensorgrad.kernels.compiled.runtime import launch as compiled
from tensorgrad.kernels.compiled.runtime import thread_pool
from tensorgrad.kernels.compiled.runtime.launch import Shared, address
from tensorgrad.kernels.compiled.runtime.thread_pool import Heard
from tensorgrad.rows.kernel_tables import COMPILED
from tensorgrad.settings import SETTINGS

FIXED = ("a", "k")  # how the names of arrays begin that are the same objects in each call
BYTE = np.dtype(np.uint8)


class Taken(NamedTuple):
    """How a chain runs an op.

    Attributes:
        same: a compiled kernel that gives the same bits where the op's own has launched nothing: NumPy ran it.
        finite: the kernel that has to have served, and whose result has to be finite: nothing else reads a value then.
    """

    same: str = ""
    finite: str = ""


_PLAIN = Taken()
# The ops, and the gradients of ops, that a chain takes.
TAKEN: dict[str, Taken] = {
    **dict.fromkeys(
        (
            "linear", "linear.backward", "conv", "cat", "clone_copy", "reshape", "where",
            "gelu", "gelu.backward", "silu", "silu.backward", "sigmoid", "sigmoid.backward", "tanh.backward", "exp",
            "erf", "clamp", "softmax", "softmax.backward", "log_softmax", "log_softmax.backward",
            "layer_norm", "layer_norm.backward", "rms_norm", "rms_norm.backward", "batch_norm", "batch_norm.backward",
            "group_norm", "group_norm.backward", "attention", "attention.backward",
            "max_pool", "max_pool_values", "max_pool_grad", "avg_pool", "avg_pool_grad",
            "batch_norm_relu_pool", "batch_norm_relu_pool_grad",
        ),
        _PLAIN,
    ),
    "relu": Taken(same="relu"), "relu.backward": Taken(same="relu.backward"),
    "add": Taken(same="joint_add"), "sub": Taken(same="joint_sub"),
    "mul": Taken(same="joint_mul"), "div": Taken(same="joint_div"),
    "cross_entropy": Taken(finite="few"), "cross_entropy.backward": Taken(same="cross_entropy.backward"),
}  # fmt: skip


class Memory:
    """The memory of an array that a chain writes, or of one that it is given.

    Attributes:
        low, high: its addresses, as far as it is used.
        whole: those of all that was allocated with it.
        text, array: how Python names an array that begins at `start`, and one like it; "" if it does not.
        since: how many steps there were before Python had it.
        first, last: the numbers of the first and last launch that use it.
        place: where it is in the arena, in bytes; -1: not there.
    """

    def __init__(self, array: np.ndarray, text: str = "", since: int = 0) -> None:
        self.array, self.text, self.since = array, text, since
        self.low, self.high = bounds(array)
        self.root = root_of(array)
        self.whole, self.start = bounds(self.root), address(array)
        self.first, self.last, self.place = math.inf, -1, -1

    def holds(self, array: np.ndarray) -> None:
        """Says that an array is in it, too."""
        low, high = bounds(array)
        self.low, self.high = min(self.low, low), max(self.high, high)


class Piece(NamedTuple):
    """One array as part of memory."""

    memory: Memory
    array: np.ndarray

    def made_of(self, text: str, start: int, names: dict[str, Any]) -> str:
        """The expression of an array like this one, over bytes that `text` holds from `start` on."""
        names["ndarray"] = np.ndarray
        dtype = f"d_{self.array.dtype.str[1:]}"
        names[dtype] = self.array.dtype
        offset = start + address(self.array) - self.memory.low
        return f"ndarray({self.array.shape}, {dtype}, {text}, {offset}, {self.array.strides})"


Run = tuple[Shared, int, list[Any]]  # a kernel, its length, and its numbers, with arrays in the places of addresses


class Link(NamedTuple):
    """An op of a chain: what it launches, and its results. A view launches nothing."""

    launch: Launch
    runs: list[Run]
    pieces: dict[str, Piece]
    checked: str = ""  # a result that has to be finite, or ""
    scratch: tuple[Memory, ...] = ()  # memory that only its launches use
    number: int = 0  # of the steps before it
    elements: int = 0  # the work of its launches


def bounds(array: np.ndarray) -> tuple[int, int]:
    """The addresses between which an array's elements are."""
    low = high = address(array)
    if array.size:
        for n, step in zip(array.shape, array.strides, strict=True):
            low, high = low + min(0, (n - 1) * step), high + max(0, (n - 1) * step)
        high += array.itemsize
    return low, high


def root_of(array: np.ndarray) -> np.ndarray:
    """The array that owns an array's memory."""
    while array.base.__class__ is np.ndarray:
        array = array.base
    return array


def full_of_nan(array: np.ndarray) -> np.ndarray:
    """Fills an array with bytes that are nan as floating-point numbers."""
    array.reshape(-1).view(np.uint8)[:] = 255
    return array


def ends_with_grad(launch: Launch) -> bool:
    """Whether a launch reads the `.grad` of a leaf."""
    return launch.text.endswith("._grad._array")


class Links:
    """Listens to a plan's launches, in order, and finds the links among them.

    Attributes:
        steps: the links, and the launches that are not links.
        possible: whether the memory that arrays share now is what they share in each call.
    """

    def __init__(self, outside: dict[str, np.ndarray]) -> None:
        """`outside` are the arrays that the plan is given."""
        self.steps: list[Link | Launch] = []
        self.possible = True
        self._given: list[Memory] = []
        self._own: list[Memory] = []
        self._pieces: dict[str, Piece] = {}
        self._constants: list[np.ndarray] = []
        self._gradients: set[str] = set()
        for text, array in outside.items():
            self._give(text, array)

    def run(self, launch: Launch, names: dict[str, Any]) -> None:
        """Executes a launch, and finds out whether a chain can."""
        arguments = [eval(text, names) for text in launch.arguments] if launch.of else []
        heard, results = _executed(launch, names)
        link, taken = None, TAKEN.get(launch.of)
        if launch.of == VIEW or (taken is not None and not heard):
            link = self._view(launch, results)
        if taken is not None and link is None:
            if not heard and taken.same:
                heard, results = _by_compiled(taken.same, arguments, heard, results)
            link = self._link(launch, taken, heard, results, names)
        if ends_with_grad(launch):
            self._gradients.update(launch.results)
        if link is not None:
            self._pieces |= link.pieces
            self.steps.append(link)
            return
        self.steps.append(launch)
        for name in launch.results:
            value = names[name]
            if value.__class__ in (tuple, list):
                for i, one in enumerate(value):
                    self._give(f"{name}[{i}]", one)
            else:
                self._give(name, value)

    # --- memory ---

    def _give(self, text: str, array: Any) -> None:
        if array.__class__ is np.ndarray:
            if not text.startswith(FIXED) and self._find(array, overlap=True) is not None:
                self.possible = self.possible and not self._may_change(text)
            self._given.append(Memory(array, text, len(self.steps)))

    def _may_change(self, text: str) -> bool:
        """Whether what shares memory with an array now may not do so in another call: arguments and gradients."""
        return text.startswith("v_in") or text in self._gradients

    def _find(self, array: np.ndarray, overlap: bool = False, before: float = math.inf) -> Memory | None:
        """The memory that an array lies in, or that it overlaps; of what Python has, the last before a step."""
        low, high = bounds(array)
        for memory in reversed(self._given):
            if memory.since > before:
                continue
            if (memory.low <= low and high <= memory.high) or (overlap and memory.low < high and low < memory.high):
                return memory
        for memory in reversed(self._own):
            if memory.whole[0] <= low and high <= memory.whole[1]:
                return memory
        return None

    # --- links ---

    def _view(self, launch: Launch, results: list[Any]) -> Link | None:
        """The link of arrays in memory of the chain's, which nothing was launched for."""
        pieces = {}
        for name, array in zip(launch.results, results, strict=True):
            memory = self._find(array) if array.__class__ is np.ndarray and array.size else None
            if memory is None or not any(memory is m for m in self._own):
                return None
            pieces[name] = Piece(memory, array)
        return Link(launch, [], pieces)

    def _link(
        self, launch: Launch, taken: Taken, heard: list[Heard], results: list[Any], names: dict[str, Any]
    ) -> Link | None:
        """What a chain needs to do the same, or None."""
        if taken.finite and [h.kernel.__name__ for h in heard] != [taken.finite]:
            return None
        if not heard or any(h.kernel.__class__ is not Shared or h.several for h in heard):
            return None
        constant: set[int] = set()
        runs = _runs(heard)
        if not all(self._known(array, results) for array in _arrays(runs)):
            # What is at the same place in a second call is kept by the kernel; other memory is made for the call.
            before, runs_before = results, runs
            heard, results = _executed(launch, names)
            runs = _runs(heard)
            again = {id(root_of(a)) for a in _arrays(runs) if self._find(a) is None}
            constant = again & {id(root_of(a)) for a in _arrays(runs_before)}
            del before
        made = self._made(launch, results, runs, constant)
        if made is None:
            return None
        pieces, scratch = made
        fixed = [(k, length, [self._fixed(n, constant) for n in numbers]) for k, length, numbers in runs]
        checked = launch.results[0] if taken.finite else ""
        link = Link(launch, fixed, pieces, checked, scratch, len(self.steps), sum(h.elements for h in heard))
        if not self._alike(link):
            return None
        names.update(zip(launch.results, results, strict=True))
        self._own += [*{id(p.memory): p.memory for p in pieces.values()}.values(), *scratch]
        return link

    def _known(self, array: np.ndarray, results: list[Any]) -> bool:
        root = root_of(array)
        return self._find(array) is not None or any(
            r.__class__ is np.ndarray and root_of(r) is root for r in results
        )  # fmt: skip

    def _made(
        self, launch: Launch, results: list[Any], runs: list[Run], constant: set[int]
    ) -> tuple[dict[str, Piece], tuple[Memory, ...]] | None:
        """The results as parts of memory, and the memory that launches have used besides."""
        made: dict[int, Memory] = {}
        pieces: dict[str, Piece] = {}
        for name, array in zip(launch.results, results, strict=True):
            if array is None:
                continue
            if array.__class__ is not np.ndarray or not array.size or self._find(array) is not None:
                return None
            memory = made.setdefault(id(root_of(array)), Memory(array))
            memory.holds(array)
            pieces[name] = Piece(memory, array)
        ours, used = set(made), set()
        for array in _arrays(runs):
            root = root_of(array)
            if id(root) in constant or (id(root) not in made and self._find(array) is not None):
                continue
            if id(root) not in made and array.dtype is not F32:
                return None  # numbers that lead to places, perhaps
            made.setdefault(id(root), Memory(array)).holds(array)
            used.add(id(root))
        if not ours <= used:
            return None
        return pieces, tuple([memory for key, memory in made.items() if key not in ours])

    def _fixed(self, number: Any, constant: set[int]) -> Any:
        """A number of a launch, with the address of an array that is the same in each call."""
        if number.__class__ is not np.ndarray or (number.size and id(root_of(number)) not in constant):
            return number
        self._constants.append(number)
        return address(number)

    def _alike(self, link: Link) -> bool:
        """Whether the launches alone leave the same bits, in memory full of nan."""
        arrays: list[np.ndarray] = []
        places: dict[int, int] = {}  # id of an array or memory -> its number among them
        for memory in [*{id(p.memory): p.memory for p in link.pieces.values()}.values(), *link.scratch]:
            places[id(memory)] = len(arrays)
            arrays.append(full_of_nan(np.empty(memory.high - memory.low, BYTE)))
        own = {id(m.root): m for m in [p.memory for p in link.pieces.values()] + [*link.scratch]}

        def place(number: Any) -> Any:
            if number.__class__ is not np.ndarray:
                return number
            memory = own.get(id(root_of(number)))
            if memory is not None:
                return places[id(memory)], address(number) - memory.low
            places.setdefault(id(number), len(arrays))
            if places[id(number)] == len(arrays):
                arrays.append(number)
            return places[id(number)], 0

        launches = [(k, length, [place(n) for n in numbers]) for k, length, numbers in link.runs]
        listed = compiled.listed(arrays, launches)
        if not compiled.replay()(address(listed), *arrays):
            return False
        for piece in link.pieces.values():
            array, start = piece.array, address(piece.array) - piece.memory.low
            found = np.ndarray(array.shape, array.dtype, arrays[places[id(piece.memory)]], start, array.strides)
            if found.tobytes() != array.tobytes():
                return False
        return True


def _executed(launch: Launch, names: dict[str, Any]) -> tuple[list[Heard], list[Any]]:
    """What a launch launches, and its results."""
    with thread_pool.listening() as heard:
        exec(launch.text, names)
    return heard, [names[name] for name in launch.results]


def _by_compiled(
    name: str, arguments: list[Any], heard: list[Heard], results: list[Any]
) -> tuple[list[Heard], list[Any]]:
    """The launches and the result of a compiled kernel, if it gives the same bits as NumPy's."""
    row = COMPILED.get(name)
    if row is None or SETTINGS.deterministic or not row.available() or len(results) != 1:
        return heard, results
    with thread_pool.listening() as launched:
        made = row.ready(*arguments)
    (before,) = results
    if made.__class__ is not np.ndarray or before.__class__ is not np.ndarray:
        return heard, results
    alike = made.shape == before.shape and made.strides == before.strides and made.dtype == before.dtype
    return (launched, [made]) if alike and made.tobytes() == before.tobytes() else (heard, results)


def _runs(heard: list[Heard]) -> list[Run]:
    return [(h.kernel, h.length, compiled.numbers_of(h.kernel, h.arguments)) for h in heard]


def _arrays(runs: list[Run]) -> list[np.ndarray]:
    """The arrays among the numbers."""
    return [n for _, _, numbers in runs for n in numbers if n.__class__ is np.ndarray and n.size]
