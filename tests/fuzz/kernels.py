"""Runs a case with the compiled or CUDA kernels and with NumPy's, compares the results, and shrinks failing cases."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import os
import random
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

import tensorgrad as torch
from tensorgrad.kernels.compiled import table
from tensorgrad.rows import kernel_tables
from tests.fuzz import calls
from tests.fuzz.cases import Array, Case, Draw
from tests.fuzz.families import FAMILIES, Family

NAMES = {
    "torch": torch, "F": torch.nn.functional, "inf": float("inf"), "nan": float("nan"),
    **{name: made for name, made in vars(calls).items() if getattr(made, "__module__", None) == calls.__name__},
}  # fmt: skip
hooked = torch.autograd.graph.saved_tensors_hooks
LIMIT = {"float64": 1e-10, "float32": 2e-5, "float16": 5e-3, "bfloat16": 4e-2, "complex64": 2e-5}
_FLOOR = 0.02  # the smallest scale: cancellation between numbers of about one leaves rounding errors of this size
_SHARE = 0.05  # the same as a fraction of a case's largest result or gradient, since others may be differences of such
# The last digit, and about the largest number.
ROUNDING = {"float32": (1e-7, 3e38), "float16": (1e-3, 6e4), "bfloat16": (8e-3, 3e38), "float64": (2e-16, 1e308)}
_NEVER = 1 << 62  # a threshold, in elements, that prevents the use of compiled kernels


class Wrong(Exception):
    """Raised with the differences in a case."""


# --- the two ways to run a case --------------------------------------------------------------------------------------


class Used(Counter):
    """Counts how often each row's kernel has returned a result."""

    def notes(self, row: str, kernel):
        def noting(*given, **options):
            made = kernel(*given, **options)
            if made is not NotImplemented:
                self[row] += 1
            return made

        return noting


USED = Used()


_loaded: dict[str, Any] = {}  # the kernels by row, without the counting wrapper


def load(names) -> None:
    """Loads the kernels of some rows, and counts their calls."""
    from tensorgrad.kernels.compiled.runtime import library

    for row in table.ROWS:
        if row.op in names and row.op not in _loaded:
            made = row.ready or library.load(row.kernel)
            _loaded[row.op] = made
            row.ready = made if row is table.WAITING else USED.notes(row.op, made)


def watch_cuda() -> None:
    """Counts the calls of CUDA kernels."""

    def noting(name, kernel):
        notes = USED.notes(name, kernel)
        if not hasattr(kernel, "takes"):
            return notes
        # A kernel over lists of arrays defines what it takes.
        return type("Noting", (), {"__call__": staticmethod(notes), "__getattr__": lambda _, k: getattr(kernel, k)})()

    rows = kernel_tables.REGISTRY["cuda", "device"]
    for name, path in rows.items():
        if path.__class__ is str:  # not watched yet
            rows[name] = noting(name, kernel_tables.function_at(path))
    kernel_tables.forget()


@contextlib.contextmanager
def thresholds(elements: int) -> Iterator[None]:
    """Uses compiled kernels from `elements` elements on."""
    before = {row: row.elements for row in table.ROWS}
    for row in table.ROWS:
        row.elements = elements if row.op in _loaded else _NEVER
    try:
        yield
    finally:
        for row, kept in before.items():
            row.elements = kept


@contextlib.contextmanager
def ways(chosen: dict[str, float]) -> Iterator[None]:
    """Changes settings by which compiled kernels choose an algorithm; plans made with other settings are dropped."""
    modules = {
        name: importlib.import_module(f"tensorgrad.kernels.compiled.{name.rpartition('.')[0]}") for name in chosen
    }
    before = {name: getattr(module, name.rpartition(".")[2]) for name, module in modules.items()}

    def put(values):
        for name, value in values.items():
            setattr(modules[name], name.rpartition(".")[2], value)
        if values:
            for name in ("conv", "images", "simd.tiles"):
                for member in vars(importlib.import_module(f"tensorgrad.kernels.compiled.{name}")).values():
                    # Only the plans; the loops are kept, as they depend on at most one setting.
                    if isinstance(member, functools._lru_cache_wrapper) and member.cache_parameters()["maxsize"] > 2:
                        member.cache_clear()

    put(chosen)
    try:
        yield
    finally:
        put(before)


@contextlib.contextmanager
def compiled(case: Case) -> Iterator[None]:
    """Uses compiled kernels for all sizes, on the case's number of threads, and shares any amount of work."""
    from tensorgrad.kernels.compiled.runtime import thread_pool

    threads, grain, waking = torch.get_num_threads(), thread_pool.GRAIN, thread_pool.WAKING
    torch.set_num_threads(case.threads)
    thread_pool.GRAIN, thread_pool.WAKING = (1, 2) if case.threads > 1 else (grain, waking)
    try:
        with thresholds(0), ways(case.ways), poison():
            yield
    finally:
        torch.set_num_threads(threads)
        thread_pool.GRAIN, thread_pool.WAKING = grain, waking


_empty = np.empty


def _poisoned(*given, **options):
    made = _empty(*given, **options)
    if made.dtype.kind in "fc":
        made.fill(np.nan)
    elif made.dtype.kind in "iu":
        made.fill(77)
    return made


@contextlib.contextmanager
def poison() -> Iterator[None]:
    """Fills fresh memory with NaN, which exposes kernels that do not write all of their result."""
    np.empty = _poisoned
    try:
        yield
    finally:
        np.empty = _empty


class Result(NamedTuple):
    """The outcome of a case: its results and gradients, the memory of its arrays afterwards, or the error."""

    values: list
    memories: list
    error: BaseException | None


def run(case: Case, device: str = "cpu", wide: bool = False, jitter: float = 0.0, axis: int | None = None) -> Result:
    """Evaluates a case, with gradients where possible.

    With `wide`, it runs in double precision, with its values changed as `widened` says.
    """
    made = {name: array.make(device) for name, array in case.arrays.items()}
    if wide:
        made = {k: widened(t, whole, jitter, axis) for k, (t, whole) in made.items()}
    torch.manual_seed(case.seed)
    values: list = []
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            with hooked(lambda t: t, lambda t: t) if case.backward == "hooked" else contextlib.nullcontext():
                results = flat(eval(case.call, {**NAMES, "device": device, **{k: t for k, (t, _) in made.items()}}))
            values = [r.detach() for r in results]
            leaves = [t for t, _ in made.values() if t.requires_grad and t.is_leaf]
            outs = [r for r in results if r.requires_grad]
            if case.gradient and leaves and outs:
                given = [cotangent(r, case, i, device) for i, r in enumerate(outs)]
                found = torch.autograd.grad(
                    outs, leaves, given, create_graph=case.backward == "recorded", allow_unused=True
                )
                values += [g for g in found if g is not None]
        return Result([array_of(v) for v in values], [array_of(w) for _, w in made.values()], None)
    except Exception as error:
        if isinstance(error, (SyntaxError, NameError, AttributeError)):  # an error of the fuzzer itself
            raise
        return Result([], [], error)


def widened(
    tensor: torch.Tensor, whole: torch.Tensor, jitter: float, axis: int | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Converts a tensor and the memory around it to double precision, and changes it by the relative amount `jitter`.

    All elements change independently, or with `axis` all those that have the same index there change alike.
    """
    if not tensor.dtype.is_floating_point:
        return tensor, whole
    numbers = tensor.detach().double().numpy()
    form = numbers.shape if axis is None else tuple(n if i == axis else 1 for i, n in enumerate(numbers.shape))
    numbers = numbers * (1 + jitter * np.random.default_rng(numbers.size).standard_normal(form))
    return torch.from_numpy(np.asarray(numbers)).requires_grad_(tensor.requires_grad), whole


def cotangent(result: torch.Tensor, case: Case, number: int, device: str) -> torch.Tensor:
    """Returns a gradient for a result, with its own layout."""
    dtype = str(result.dtype).removeprefix("torch.")
    made = Array(tuple(result.shape), dtype, case.gradient, seed=case.seed + number, grad=False)
    return made.make(device)[0]


def flat(made) -> list:
    """Returns the tensors of a result, as a flat list."""
    if isinstance(made, torch.Tensor):
        return [made]
    return [t for part in made for t in flat(part)] if isinstance(made, (list, tuple)) else []


def array_of(tensor: torch.Tensor) -> np.ndarray:
    tensor = tensor.detach().cpu()
    return np.array(tensor.double().numpy() if tensor.dtype == torch.bfloat16 else tensor.numpy())


# --- the comparison --------------------------------------------------------------------------------------------------


def compare(case: Case, family: Family, device: str = "cpu") -> str:
    """Runs a case both ways. Returns "same" or "refused"; raises Wrong with what differs."""
    if family.claims:
        with thresholds(_NEVER):
            made = run(case, device)
        if made.error is not None or not all(value.all() for value in made.values):
            raise Wrong(f"not all of {made.values} hold") from made.error
        return "same"
    with thresholds(_NEVER):
        slow = run(case)
    if device == "cpu":
        with compiled(case):
            fast = run(case)
    else:
        with thresholds(_NEVER):
            fast = run(case, device)
    if slow.error is not None or fast.error is not None:
        if type(slow.error) is not type(fast.error):
            raise Wrong(f"NumPy's kernel: {slow.error!r}; the other: {fast.error!r}") from fast.error or slow.error
        return "refused"
    if len(slow.values) != len(fast.values):
        raise Wrong(f"{len(fast.values)} results and gradients, expected {len(slow.values)}")
    dtypes = {a.dtype for a in case.arrays.values()}
    least = next((name for name in ("bfloat16", "float16", "float32", "float64") if name in dtypes), "float32")
    rounding, largest = ROUNDING[least]
    wide, moved = None, []
    pairs = [*zip(fast.values, slow.values, strict=True), *zip(fast.memories, slow.memories, strict=True)]
    for n, (a, b) in enumerate(pairs):
        what = f"result or gradient {n}" if n < len(slow.values) else f"memory of array {n - len(slow.values)}"
        if a.shape != b.shape or a.dtype != b.dtype:
            raise Wrong(f"{what}: {a.dtype} {a.shape}, expected {b.dtype} {b.shape}")
        if a.dtype.kind not in "fc":
            if not np.array_equal(a, b):
                raise Wrong(f"{what}: {short(a)}, expected {short(b)}")
            continue
        limit = LIMIT[least] * family.loose
        if alike(a, b, limit, family):
            continue
        if wide is None:  # how much of it is rounding, according to double precision
            with thresholds(_NEVER):
                wide = run(case, wide=True)
                # Equal numbers have equal rounding errors, which add up, so some changes are alike along an axis.
                axes = (None, *range(max(len(array.shape) for array in case.arrays.values())))
                moved = [run(case, wide=True, jitter=rounding, axis=axis) for axis in axes]
        known = all(r.error is None for r in (wide, *moved)) and n < len(slow.values) == len(wide.values)
        others = [r.values[n] for r in moved] if known else []
        if not known or not excused(a, b, wide.values[n], others, limit, largest, _SHARE * top(wide)):
            exactly = f", exactly {short(wide.values[n])}" if known else ""
            raise Wrong(f"{what}: {short(a)}, expected {short(b)}{exactly}")
    return "same"


def alike(a: np.ndarray, b: np.ndarray, limit: float, family: Family) -> bool:
    """Returns whether values are the same up to rounding, relative to the largest of them."""
    finite = np.isfinite(b)
    if family.sums:
        if not np.array_equal(np.isfinite(a), finite):
            return False
    elif not (np.array_equal(np.isnan(a), np.isnan(b)) and np.array_equal(a[np.isinf(b)], b[np.isinf(b)])):
        return False
    if not finite.any():
        return True
    a, b = a[finite].astype(np.float64), b[finite].astype(np.float64)
    return bool((np.abs(a - b) <= limit * (np.abs(b) + np.clip(np.abs(b).max(), _FLOOR, 1e30))).all())


def top(result: Result) -> float:
    """Returns the largest finite value of all results and gradients."""
    kept = [np.abs(v[np.isfinite(v)]) for v in result.values if v.dtype.kind == "f"]
    return min(max((v.max(initial=0.0) for v in kept), default=0.0), 1e30)


def excused(
    a: np.ndarray, b: np.ndarray, true: np.ndarray, moved: list, limit: float, largest: float, floor: float
) -> bool:
    """Returns whether a difference is due to rounding, judged by the exact result and those of slightly changed inputs.

    `largest` is the dtype's largest number, and `floor` the smallest scale, since small results may come from
    cancellation. Where NumPy's kernel overflows, the exact result counts; where both kernels overflow on the way to a
    finite result, that depends on the order of the terms, and any result is accepted.
    """
    if true.shape != a.shape:
        return False
    beyond = ~np.isfinite(true) | (np.abs(true) > largest / 10)  # either kernel may overflow
    beyond |= ~np.isfinite(a) & ~np.isfinite(b)
    odd = np.isfinite(a) != np.isfinite(b)
    same = ~odd & ~beyond
    if (odd & ~beyond & ~np.isfinite(a)).any() or not np.array_equal(np.isnan(a) & same, np.isnan(b) & same):
        return False
    finite = np.isfinite(a) & ~beyond
    if not finite.any():
        return True
    a, b, true, *moved = (v[finite].astype(np.float64) for v in (a, b, true, *moved))
    ours, theirs = np.abs(a - true).max(), np.abs(b - true)[np.isfinite(b)].max(initial=0.0)
    spread = max(np.abs(m - true)[np.isfinite(m)].max(initial=0.0) for m in moved)
    return bool(ours <= 8 * theirs + 8 * spread + limit * max(np.abs(true).max(), _FLOOR, floor))


def short(array: np.ndarray) -> str:
    """Formats an array in one line."""
    text = np.array2string(array.reshape(-1)[:12], precision=6, separator=", ").replace("\n", "")
    return text if array.size <= 12 else f"{text[:-1]}, … of {array.shape}]"


# --- cases -----------------------------------------------------------------------------------------------------------


def make(name: str, seed: int, limit: int = 40, device: str = "cpu") -> Case:
    """Returns the random case of a family for a seed."""
    family = FAMILIES[name]
    draw = Draw(seed, limit, device, family.special)
    call = family.make(draw)
    if len({a.shape for a in draw.arrays.values()}) > 1:  # at a dtype's limits, sums of gradients depend on their order
        for key, array in draw.arrays.items():
            if array.values == "special":
                draw.arrays[key] = dataclasses.replace(array, values="infinite")
    gradient = draw.one("plain", "plain", "plain", "", "all expanded", "transposed", "sliced", "read-only", "odd")
    threads = draw.one(1, 1, 2, 3, 5) if device == "cpu" else 1
    return Case(
        call, draw.arrays, gradient, draw.one("", "", "", "recorded", "hooked"), threads, draw.ways, seed % 1000
    )


def fits(name: str, device: str) -> bool:
    """Returns whether a family has kernels for a device."""
    family = FAMILIES[name]
    return bool(family.rows) if device == "cpu" else bool(family.cuda) or any(r in cuda_rows() for r in family.rows)


def cuda_rows() -> list[str]:
    """Returns the rows of the table of CUDA kernels, except for those that run on the host."""
    from tensorgrad.kernels.cuda import table

    return [name for name, path in table.ROWS.items() if not path.startswith("host.")]


def check(name: str, seed: int, device: str = "cpu", limit: int = 40) -> str:
    """Makes and compares a case. Raises: Wrong if it differs."""
    family = FAMILIES[name]
    if device == "cpu":
        load((*family.rows, "spin_wait"))
    return compare(make(name, seed, limit, device), family, device)


def differs(name: str, case: Case, device: str) -> str | None:
    """Returns what is wrong with a case, or None."""
    try:
        compare(case, FAMILIES[name], device)
    except Wrong as wrong:
        return str(wrong)
    except Exception:  # a simplified case may be invalid
        return None
    return None


def shrink(name: str, seed: int, device: str = "cpu", tries: int = 300) -> tuple[Case, str]:
    """Finds a small failing case: the smallest of several of its family, simplified as long as it still fails."""
    best = make(name, seed, device=device)
    wrong = differs(name, best, device) or "not seen again"
    others = random.Random(seed)
    for limit in (1, 2, 3, 5, 9):
        found = False
        for _ in range(tries):
            try:
                case = make(name, others.randrange(1 << 30), limit, device)
            except Exception:
                continue
            if case.size() < best.size() and (message := differs(name, case, device)):
                best, wrong, found = case, message, True
        if found:
            break
    for plainer in simpler(best):
        message = differs(name, case := plainer(best), device)
        if message and case != best:
            best, wrong = case, message
    return best, wrong


def simpler(case: Case) -> list:
    """Returns functions that each simplify a case by one step."""
    steps: list = [
        lambda c: dataclasses.replace(c, threads=1),
        lambda c: dataclasses.replace(c, ways={}),
        lambda c: dataclasses.replace(c, gradient="plain"),
        lambda c: dataclasses.replace(c, gradient=""),
        lambda c: dataclasses.replace(c, backward=""),
    ]
    for name in case.arrays:
        for change in ({"layout": "plain"}, {"values": "ones"}, {"values": "normal"}, {"grad": False}):

            def step(c, name=name, change=change):
                return dataclasses.replace(c, arrays=c.arrays | {name: dataclasses.replace(c.arrays[name], **change)})

            steps.append(step)
    return steps


def snippet(name: str, case: Case, device: str) -> str:
    """Returns a program that reproduces a case."""
    before = "" if device == "cpu" else "from tests import emulator; emulator.install()\n"
    return (
        f"{before}from tests.fuzz.cases import Array, Case\nfrom tests.fuzz.kernels import show\n"
        f"show({name!r}, {case!r}, {device!r})"
    )


def show(name: str, case: Case, device: str = "cpu") -> None:
    """Runs a case both ways and prints the results."""
    load((*FAMILIES[name].rows, "spin_wait"))
    with thresholds(_NEVER):
        print("NumPy:", run(case))
    with compiled(case) if device == "cpu" else thresholds(_NEVER):
        print("other:", run(case, device))
    print(differs(name, case, device) or "the same")


def prepare(device: str) -> None:
    """Prepares the kernels of a device before their cases run."""
    if device == "cpu":
        rows = [row.op for row in table.ROWS]
        for op in tqdm(rows, "kernels compiled or read", disable=None if sys.stderr.isatty() else True):
            load((op,))
    else:
        if os.environ.get("DEVICE") == "emulator":
            from tests import emulator

            emulator.install()
        torch.cuda.init()
        watch_cuda()
        from tensorgrad.kernels.cuda.runtime import switches

        switches.cudnn.allow_tf32 = False
