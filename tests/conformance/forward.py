"""Forward-mode derivatives of PyTorch's op database: those of tensorgrad against torch's, and finite differences.

    python -m tests.conformance.forward                     every record for which torch has a forward derivative
    python -m tests.conformance.forward linalg.svd add      these records, with all that is wrong
    python -m tests.conformance.forward --state FILE        continues where an earlier run with this file ended
    python -m tests.conformance.forward --second            second derivatives: forward mode over and under backward

It prints the records that are wrong, how many are right, and which ops needed a backward pass through their formulas
(`tensorgrad.transforms.tangents.transposed`).
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np
import torch
from torch.autograd import forward_ad

import tensorgrad as tg
from tensorgrad.autograd import forward_ad as our_forward_ad
from tensorgrad.transforms import tangents
from tests.conformance import each_record, opdb
from tests.conformance.opdb_bridge import close, copied, leaves, numpy_of, plain_name, to_tg

DTYPES = (torch.float32, torch.float64, torch.complex128)
SAMPLES = 6  # of each record and dtype
ELEMENTS = 500  # in the inputs of a sample
STEP = 1e-6

# Where torch's own tangents are off by this much: cholesky_inverse's differ from finite differences by 1e-5 even along
# triangular directions (tests/autograd/test_forward.py), and cov's are rounded by weights in single precision.
INEXACT = {"cholesky_inverse": 1e-4, "cov": 1e-3}

# Records whose second derivatives by the three ways differ with reason. The first ones read one triangle of a symmetric
# matrix: along a direction that is not symmetric, tangent and gradient follow PyTorch, whose own do not agree.
# native_batch_norm's statistics have tangents but no gradients, as in PyTorch; cov has weights in single precision.
SECOND_APART = {
    "linalg.cholesky", "linalg.cholesky_ex", "linalg.eigh", "linalg.eigvalsh", "linalg.pinv.hermitian",
    "native_batch_norm", "cov",
}  # fmt: skip

TRANSPOSED: dict[str, set[str]] = {}  # op -> the records in which its tangent needed a backward pass
_record = ""
_rule = tangents._transposed


def _counted(op, *rest):
    TRANSPOSED.setdefault(op.name, set()).add(_record)
    return _rule(op, *rest)


tangents._transposed = _counted


def supported(record) -> bool:
    """Whether torch has a forward derivative for a record, and tensorgrad the function."""
    return record.supports_forward_ad and opdb.resolve(record) is not None


def _mapped(value, change):
    """Nested values with every tensor that requires grad replaced."""
    if isinstance(value, torch.Tensor | tg.Tensor):
        return change(value) if value.requires_grad else value
    if isinstance(value, tuple | list):
        return [_mapped(v, change) for v in value]
    return {k: _mapped(v, change) for k, v in value.items()} if isinstance(value, dict) else value


def _directions(call):
    generator = torch.Generator().manual_seed(2)
    wanted = [t for t in leaves((call.inputs, call.kwargs)) if t.requires_grad]
    return [torch.randn(t.shape, generator=generator, dtype=t.dtype) for t in wanted]


def _differentiable(results) -> list:
    return [r for r in leaves(results) if r.is_floating_point() or r.is_complex()]


def _theirs(call, directions):
    """Torch's tangents; None where it has no forward derivative after all."""
    along = iter(directions)
    with forward_ad.dual_level():
        given = _mapped(copied((call.inputs, call.kwargs)), lambda t: forward_ad.make_dual(t.detach(), next(along)))
        try:
            results = call.process(call.torch(given))
        except NotImplementedError:
            return None
        found = [forward_ad.unpack_dual(r).tangent for r in _differentiable(results)]
        return [None if t is None else numpy_of(t) for t in found], [
            plain_name(r.dtype) for r in _differentiable(results)
        ]


def _ours(call, directions, recorded):
    along = iter(to_tg(list(directions)))
    with our_forward_ad.dual_level():
        given = _mapped(
            to_tg((call.inputs, call.kwargs)),
            lambda t: our_forward_ad.make_dual(t if recorded else t.detach(), next(along)),
        )
        results = call.ours(given)
        if (process := opdb.translate(call.process)) is not None:
            results = process(results)
        found = [our_forward_ad.unpack_dual(r).tangent for r in _differentiable(results)]
        for t, r in zip(found, _differentiable(results), strict=True):
            if t is not None and (t.shape != r.shape or t.dtype != r.dtype):
                raise AssertionError(f"a tangent {t.dtype}{list(t.shape)} of {r.dtype}{list(r.shape)}")
        return [None if t is None else numpy_of(t) for t in found]


def _by_differences(call, directions) -> list[np.ndarray] | None:
    """The same by central differences of torch's function."""
    ends = []
    for sign in (1, -1):
        along = iter(directions)
        moved = _mapped(copied((call.inputs, call.kwargs)), lambda t, s=sign, a=along: t.detach() + s * STEP * next(a))
        ends.append([numpy_of(r) for r in _differentiable(call.process(call.torch(moved)))])
    with np.errstate(all="ignore"):
        return [(above - below) / (2 * STEP) for above, below in zip(*ends, strict=True)]


def _zeros(found, like):
    return [np.zeros_like(x) if t is None else t for t, x in zip(found, like, strict=True)]


def check(record, dtype, limit=SAMPLES) -> list[str]:
    """What is wrong with the tangents of a record's results: without recording, and once while it is recorded."""
    global _record
    _record = opdb.record_name(record)
    problems = []
    for nr, call in enumerate(opdb.calls(record, dtype, True, limit, ELEMENTS)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                problems += [f"{p}   ({dtype}: {call})" for p in _compare(call, nr == 0)]
            except Exception as error:
                problems.append(f"{type(error).__name__}: {str(error)[:300]}   ({dtype}: {call})")
    return problems


def _compare(call, recorded: bool) -> list[str]:
    directions = _directions(call)
    if not directions:
        return []
    expected = _theirs(call, directions)
    if expected is None:
        return []
    expected, dtypes = expected
    problems = []
    for record in (False, True) if recorded else (False,):
        found = _ours(call, directions, record)
        if len(found) != len(expected):
            return [f"{len(found)} results, expected {len(expected)}"]
        for i, (e, a, dtype) in enumerate(zip(expected, found, dtypes, strict=True)):
            if e is None and a is None:
                continue
            e, a = (np.zeros((), dtype) if t is None else t for t in (e, a))
            if call.random or close(a, e, dtype):
                continue
            if dtype in ("float32", "complex64") and _no_further_off(call, directions, i, a, e):
                continue
            if call.record.name in INEXACT and close(a, e, dtype, INEXACT[call.record.name]):
                continue
            by_differences = _by_differences(call, directions)[i]
            with np.errstate(all="ignore"):
                ours, theirs = np.abs(a - by_differences), np.abs(e - by_differences)
                if np.all(ours <= 1e-4 * (1 + np.abs(by_differences))) and not np.max(theirs) <= 2 * np.max(ours):
                    continue  # torch's is further off, or not a number
            problems.append(
                f"tangent {i}{' (recorded)' if record else ''}: {a.reshape(-1)[:4]}, expected {e.reshape(-1)[:4]}, by "
                f"differences {by_differences.reshape(-1)[:4]}"
            )
    return problems


def _no_further_off(call, directions, i: int, ours: np.ndarray, theirs: np.ndarray) -> bool:
    """Whether a tangent in single precision is about as close as torch's to one in double precision.

    That is torch's or, should it not be the derivative, finite differences.
    """
    wide = call.widened()
    if wide is None:
        return False
    doubled = [t.to(torch.complex128 if t.is_complex() else torch.float64) for t in directions]
    by_torch = (_theirs(wide, doubled) or ([],))[0]
    for exact in (*by_torch[i : i + 1], _by_differences(wide, doubled)[i]):
        if exact is None or np.shape(exact) != ours.shape:
            continue
        with np.errstate(all="ignore"):
            counted = ~(np.isnan(ours) & np.isnan(theirs + np.zeros_like(ours)))
            own, other = (np.max(np.abs(x - exact)[counted], initial=0) for x in (ours, theirs))
            if own <= 2 * other + 1e-5 * np.max(np.abs(exact)[counted], initial=1):
                return True
    return False


def check_second(record, dtype, limit=3) -> list[str]:
    """Where forward over reverse, or reverse over forward mode, differs from backward twice (all tensorgrad's own)."""
    problems = []
    for call in opdb.calls(record, dtype, True, limit, 100):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                problems += [f"{p}   ({dtype}: {call})" for p in _compare_second(call)]
            except Exception as error:
                problems.append(f"{type(error).__name__}: {str(error)[:300]}   ({dtype}: {call})")
    return problems


def _weighted(call, results) -> tg.Tensor:
    """The sum of all results, each with fixed weights."""
    process = opdb.translate(call.process)
    parts = _differentiable(process(results) if process is not None else results)
    generator = torch.Generator().manual_seed(3)
    total = tg.zeros((), dtype=tg.float64)
    for part in parts:
        weights = to_tg(torch.randn(tuple(part.shape), generator=generator, dtype=torch.float64))
        total = total + ((part.real + 2 * part.imag if part.is_complex() else part) * weights).sum()
    return total


def _compare_second(call) -> list[str]:
    directions = _directions(call)
    along = to_tg(directions)

    def inputs():
        given = to_tg((call.inputs, call.kwargs))
        return given, [t for t in leaves(given) if t.requires_grad]

    def inner(a, b):
        pairs = [(x, y) for x, y in zip(a, b, strict=True) if x is not None]
        return sum(((x.conj() * y).real if x.is_complex() else x * y).sum() for x, y in pairs)

    given, points = inputs()
    total = _weighted(call, call.ours(given))
    if not total.requires_grad:
        return []
    first = tg.autograd.grad(total, points, create_graph=True, allow_unused=True)
    slope = inner(first, along)
    twice = [None] * len(points)
    if isinstance(slope, tg.Tensor) and slope.requires_grad:
        twice = tg.autograd.grad(slope, points, allow_unused=True)
    found = {}
    with our_forward_ad.dual_level():
        steps = iter(along)
        duals = []

        def dual(t):
            duals.append(our_forward_ad.make_dual(t, next(steps)))
            return duals[-1]

        given = _mapped(to_tg((call.inputs, call.kwargs)), dual)
        gradients = tg.autograd.grad(_weighted(call, call.ours(given)), duals, allow_unused=True)
        found["forward over reverse"] = [
            None if g is None else our_forward_ad.unpack_dual(g).tangent for g in gradients
        ]
        steps = iter(along)
        given, points = inputs()
        steps = iter(along)
        given = _mapped(given, lambda t: our_forward_ad.make_dual(t, next(steps)))
        tangent = our_forward_ad.unpack_dual(_weighted(call, call.ours(given))).tangent
        found["reverse over forward"] = [None] * len(points)
        if tangent is not None and tangent.requires_grad:
            found["reverse over forward"] = tg.autograd.grad(tangent, points, allow_unused=True)
    problems = []
    for how, results in found.items():
        for i, (e, a, t) in enumerate(zip(twice, results, directions, strict=True)):
            e, a = (np.zeros(tuple(t.shape)) if x is None else numpy_of(x) for x in (e, a))
            a = np.where(np.isnan(e), e, a)  # backward twice may divide 0 by 0 where a product of zeros is meant
            if not call.random and not close(a, e, "float64", 1e-6 * np.max(np.abs(e), initial=0)):
                problems.append(f"{how}, input {i}: {a.reshape(-1)[:4]}, expected {e.reshape(-1)[:4]}")
    return problems


def section():
    """The records for which torch has a forward derivative, as a section of the conformance report."""
    from tests.conformance import opdb_families
    from tests.conformance.__main__ import Section

    records = {opdb.record_name(record): record for record in opdb.records() if record.supports_forward_ad}
    return Section(
        key="forward",
        title="Forward derivatives",
        about=f"""\
Each record of `op_db` for which PyTorch has a forward derivative is run in forward mode (dual tensors, random tangents)
with up to {SAMPLES} of its sample inputs in float32, float64 and complex128: the tangents of all results against
PyTorch's, and where they differ, against finite differences (single precision: against double). The first sample also
runs while it is recorded. `python -m tests.conformance.forward --second` compares second derivatives.""",
        entries=lambda: [entry for entry in opdb_families.entries() if entry.name in records],
        check=lambda name: [p for dtype in dtypes_of(records[name]) for p in check(records[name], dtype)],
        known={},
    )


def dtypes_of(record) -> list[torch.dtype]:
    """The dtypes in which a record is checked."""
    allowed = record.supported_backward_dtypes("cpu") or record.supported_dtypes("cpu")
    return [d for d in DTYPES if d in allowed]


def main(arguments: list[str]) -> None:
    """Checks the records that are named, or all of them."""
    second = "--second" in arguments

    def problems(record: Any) -> list[str] | None:
        apart = opdb.record_name(record) in SECOND_APART or not (record.supports_gradgrad and record.supports_autograd)
        if not supported(record) or (second and apart):
            return None
        return [p for dtype in dtypes_of(record) for p in (check_second if second else check)(record, dtype)]

    done = each_record.run(arguments, problems, TRANSPOSED)
    each_record.report(done, "forward derivatives right", "ops with a backward pass through their formulas")


if __name__ == "__main__":
    main(sys.argv[1:])
