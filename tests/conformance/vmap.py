"""`vmap` over PyTorch's op database: all samples at once, compared with one sample after the other.

    python -m tests.conformance.vmap                     every record
    python -m tests.conformance.vmap linalg.svd add      these records, with all that is wrong
    python -m tests.conformance.vmap --gradients         gradients per sample
    python -m tests.conformance.vmap --state FILE        continues where an earlier run with this file ended

Each call is batched in several ways: all tensors along the first dimension, all along the last, only the first tensor,
all but the first, and twice over. A call that our `vmap` refuses must be one that PyTorch's refuses, too. It prints the
records that are wrong, how many are right, and which ops ran in a loop (`tensorgrad.transforms.batch_rules.looped`).
"""

from __future__ import annotations

import functools
import sys
import textwrap
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import tensorgrad as tg
from tensorgrad.transforms import batch_rules
from tensorgrad.utils._pytree import tree_flatten, tree_unflatten
from tests.conformance import each_record, opdb
from tests.conformance.opdb_bridge import close, copied, leaves, numpy_of, plain_name, to_tg, translate
from tests.support.processes import output_of

if TYPE_CHECKING:
    from tests.conformance.__main__ import Section

DTYPES = (torch.float64, torch.float32, torch.complex128, torch.int64, torch.bool)
SAMPLES = 6  # of each record
ELEMENTS = 2000  # in the inputs of a sample
ULP = 1e-6

# Calls of these whose result has another shape for each sample: PyTorch's work if all samples happen to agree.
REFUSED = {"argwhere"}
# Their strides are those of a sample, which are other ones where the batch is not the first dimension.
STRIDED = {"as_strided", "as_strided_copy", "as_strided_scatter"}

COMPARED = [0]  # how many results were compared
LOOPED: dict[str, set[str]] = {}  # op -> the records in which it ran in a loop
_record = ""
_rule = batch_rules._loop


def _counted(op, *rest):
    LOOPED.setdefault(op.name, set()).add(_record)
    return _rule(op, *rest)


batch_rules._loop = _counted


def supported(record) -> bool:
    """Whether tensorgrad has the function of a record."""
    return opdb.resolve(record) is not None


def dtypes_of(record) -> list[torch.dtype]:
    """The dtypes in which a record is checked: the first real one, and a complex one."""
    found = [d for d in DTYPES if d in record.supported_dtypes("cpu")]
    complex_too = [d for d in found[1:] if d is torch.complex128]
    return found[:1] + complex_too


class Batches:
    """A call whose tensors have other values in each sample."""

    def __init__(self, call, library):
        given = copied((call.inputs, call.kwargs)) if library is torch else to_tg((call.inputs, call.kwargs))
        given = _lists(given)
        self.call, self.library = call, library
        found, self.spec = tree_flatten(given)
        self.leaves = [x.detach() if isinstance(x, library.Tensor) else x for x in found]
        self.at = [i for i, x in enumerate(found) if isinstance(x, library.Tensor)]

    def samples(self, count: int, alike: bool = False) -> list[list]:
        """The tensors of the call, for each sample."""
        return [[_changed(self.leaves[i], 0 if alike else n) for i in self.at] for n in range(count)]

    def run(self, *tensors):
        """The results of the call with these tensors."""
        given = list(self.leaves)
        for i, t in zip(self.at, tensors, strict=True):
            given[i] = t
        inputs, kwargs = tree_unflatten(given, self.spec)
        call, function = self.call, self.call.torch_function if self.library is torch else self.call.function
        self.library.manual_seed(0)
        result = function(*inputs, **kwargs)
        process = call.process if self.library is torch else translate(call.process)
        result = process(result) if process is not None else result
        return tuple(x for x in tree_flatten(result)[0] if isinstance(x, self.library.Tensor))


def _lists(value):
    """Nested values with plain tuples and lists, which both libraries' trees know."""
    if isinstance(value, dict):
        return {k: _lists(v) for k, v in value.items()}
    if type(value) in (tuple, list):
        return type(value)(_lists(v) for v in value)
    return value


def _changed(t, nr: int):
    """Another value of the same kind: positive stays positive, a valid index stays one, and so on."""
    if not nr:
        return t
    if t.dtype.is_floating_point or t.is_complex():
        return t * (1 - 0.125 * nr)
    return t.flip([*range(t.ndim)]) if nr == 1 else t


def check(record, dtype, limit=SAMPLES) -> list[str]:
    """What is wrong when the calls of a record are batched."""
    global _record
    _record = opdb.record_name(record)
    problems = []
    for nr, call in enumerate(opdb.calls(record, dtype, False, limit, ELEMENTS)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            problems += [f"{p}   ({dtype}: {call})" for p in _check_call(call, nr)]
    return problems


def _check_call(call, nr: int) -> list[str]:
    if any(t.layout is not torch.strided for t in leaves((call.inputs, call.kwargs))):
        return []  # sparse tensors have no batches, in PyTorch either
    ours = Batches(call, tg)
    count = len(ours.at)
    if not count:
        return []
    ways = [((0,) * count, False), ((-1,) * count, False)]
    if count > 1:
        ways += [((0, *(None,) * (count - 1)), False), ((None, *(0,) * (count - 1)), False)]
        if count > 2:
            ways.append(((None, 0, *(None,) * (count - 2)), False))
    if nr < 3:
        ways.append(((0,) * count, True))
    if call.record.name in STRIDED:
        ways = [way for way in ways if -1 not in way[0] and not way[1]]
    problems = []
    for dims, twice in ways:
        label = f"in_dims {dims[0] if len(set(dims)) == 1 else dims}{', twice' if twice else ''}"
        try:
            problem = _compare(ours, dims, twice)
        except Exception as error:
            if call.record.name in REFUSED or _refused(call, dims, twice):
                continue
            problem = f"{type(error).__name__}: {str(error)[:300]}"
        if problem:
            problems.append(f"{label}: {problem}")
    return problems


def _expected(batch: Batches, dims: tuple, twice: bool, alike: bool):
    """Each sample's results, one after the other, and the samples; None if the call itself fails."""
    samples = batch.samples(4 if twice else 3, alike)
    rows = [[samples[0][k] if d is None else s[k] for k, d in enumerate(dims)] for s in samples]
    try:
        return [[numpy_of(r) for r in batch.run(*(t.clone() for t in row))] for row in rows], samples
    except Exception:
        return None, samples


def stacked(library, samples, dims, twice):
    tensors = []
    for k, d in enumerate(dims):
        column = [s[k] for s in samples]
        if d is None:
            tensors.append(column[0].clone())
        elif twice:
            tensors.append(library.stack([library.stack(column[:2], -1), library.stack(column[2:], -1)]))
        else:
            tensors.append(library.stack(column, d))
    return tensors


def _compare(batch: Batches, dims: tuple, twice: bool) -> str:
    for alike in (False, True):
        expected, samples = _expected(batch, dims, twice, alike)
        if expected is not None and all([r.shape for r in row] == [r.shape for r in expected[0]] for row in expected):
            break
    else:
        return ""
    if not expected[0]:
        return ""
    tensors = stacked(tg, samples, dims, twice)
    if twice:
        inner = tg.func.vmap(batch.run, tuple(None if d is None else -1 for d in dims), randomness="same")
        found = tg.func.vmap(inner, dims, randomness="same")(*tensors)
        found = [r.flatten(0, 1) for r in found]
    else:
        found = tg.func.vmap(batch.run, dims, randomness="same")(*tensors)
    if len(found) != len(expected[0]):
        return f"{len(found)} results, expected {len(expected[0])}"
    if batch.call.record.name in opdb.VALUES_UNDEFINED:
        return ""
    for i, f in enumerate(found):
        e, a = np.stack([row[i] for row in expected]), numpy_of(f)
        COMPARED[0] += 1
        if e.shape != a.shape or e.dtype != a.dtype:
            return f"result {i}: {a.dtype}{list(a.shape)}, expected {e.dtype}{list(e.shape)}"
        if not close(a, e, plain_name(f.dtype), ULP):
            return f"result {i}: {a.reshape(-1)[:6]}, expected {e.reshape(-1)[:6]}"
    return ""


def _refused(call, dims: tuple, twice: bool, gradients: bool = False) -> bool:
    """Whether PyTorch's `vmap` refuses the call, too."""
    batch = (_Gradients if gradients else Batches)(call, torch)
    for alike in (False, True):
        tensors = stacked(torch, batch.samples(4 if twice else 3, alike), dims, twice)
        run = batch.run
        if twice:
            run = torch.func.vmap(run, tuple(None if d is None else -1 for d in dims), randomness="same")
        try:
            torch.func.vmap(run, dims, randomness="same")(*tensors)
        except Exception:
            continue
        return False
    return True


def check_gradients(record, limit: int = 3) -> list[str]:
    """Where gradients per sample, of functions under `vmap`, differ from those of one sample after the other."""
    problems = []
    if not record.supports_autograd or torch.float64 not in record.supported_dtypes("cpu"):
        return problems
    for call in opdb.calls(record, torch.float64, True, limit, 300):
        if any(t.layout is not torch.strided for t in leaves((call.inputs, call.kwargs))):
            continue
        batch = _Gradients(call)
        count = len(batch.at)
        ways = {(0,) * count, (0, *(None,) * (count - 1)), (-1, *(0,) * (count - 1))} if count else set()
        if call.record.name in STRIDED:
            ways = {way for way in ways if -1 not in way}
        for dims in sorted(ways, key=str):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    problem = _compare(batch, dims, False)
                except Exception as error:
                    if call.record.name in REFUSED or _refused(call, dims, False, gradients=True):
                        continue
                    problem = f"{type(error).__name__}: {str(error)[:300]}"
            if problem:
                problems.append(f"gradients, in_dims {dims}: {problem}   ({call})")
    return problems


class _Gradients(Batches):
    """A call whose results are the gradients of its own results by its differentiable tensors."""

    def __init__(self, call, library=tg):
        super().__init__(call, library)
        given = copied((call.inputs, call.kwargs)) if library is torch else to_tg((call.inputs, call.kwargs))
        self.wanted = [t.requires_grad for t in tree_flatten(_lists(given))[0] if isinstance(t, library.Tensor)]

    def run(self, *tensors):
        def function(*chosen):
            rest = iter(chosen)
            results = super(_Gradients, self).run(
                *(next(rest) if w else t for w, t in zip(self.wanted, tensors, strict=True))
            )
            return tuple(r for r in results if r.is_floating_point() or r.is_complex())

        chosen = [t for w, t in zip(self.wanted, tensors, strict=True) if w]
        if not chosen:
            return ()
        values, pull = self.library.func.vjp(function, *chosen)
        return pull(tuple(self.library.ones_like(v) for v in values)) if values else ()


@functools.cache
def counted() -> tuple[int, list[str]]:
    """How many ops there are, and which of them run in a loop: in a process of its own, as tests register others."""
    ops, *looped = output_of("""
        from tensorgrad import func
        from tensorgrad.rows.kernel_tables import OPS
        print(len(OPS), *func.looped_ops())
    """).split()
    return int(ops), looped


def section() -> Section:
    """The database under `vmap`, as a section of the conformance report."""
    from tests.conformance.__main__ import Section
    from tests.conformance.opdb_families import entries

    records = {opdb.record_name(record): record for record in opdb.records()}
    ops, looped = counted()
    return Section(
        key="vmap",
        title="Functions under vmap",
        about=f"""\
Each record of `op_db` is mapped over a batch with up to {SAMPLES} of its sample inputs, in a real and a complex dtype:
all tensors along the first dimension, all along the last, only the first tensor, all but the first, and twice over
(nested); the results against those of one sample after the other. What is refused must be refused by PyTorch, too.
{len(looped)} of {ops} ops run in a loop over the samples, with a warning:
{_listed(looped)}.""",
        entries=entries,
        check=lambda name: [p for dtype in dtypes_of(records[name]) for p in check(records[name], dtype)],
        known={},
    )


def _listed(names: list[str]) -> str:
    return "\n".join(textwrap.wrap(", ".join(f"`{name}`" for name in names), 120))


def main(arguments: list[str]) -> None:
    """Checks the records that are named, or all of them."""
    gradients = "--gradients" in arguments

    def problems(record: Any) -> list[str] | None:
        if not supported(record):
            return None
        return check_gradients(record) if gradients else [p for d in dtypes_of(record) for p in check(record, d)]

    done = each_record.run(arguments, problems, LOOPED)
    each_record.report(done, f"vmap right ({COMPARED[0]} results were compared)", "ops that ran in a loop")


if __name__ == "__main__":
    main(sys.argv[1:])
