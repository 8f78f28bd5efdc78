"""The sparse samples of PyTorch's op database, run by both libraries.

python -m tests.sparse.database             counts by op and layout, of all samples
python -m tests.sparse.database mul sum     what differs for these ops
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from functools import partial

import torch
from torch.testing._internal.common_methods_invocations import op_db

from tests.conformance.opdb import resolve
from tests.conformance.opdb_bridge import copied, differences, shown, to_tg, translate

LAYOUTS = {
    "coo": torch.sparse_coo, "csr": torch.sparse_csr, "csc": torch.sparse_csc, "bsr": torch.sparse_bsr,
    "bsc": torch.sparse_bsc,
}  # fmt: skip
DTYPES = (
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex128, torch.int64, torch.uint8, torch.bool
)  # fmt: skip
PER_RECORD = 60  # samples of a record, layout and dtype, spread over all that there are


def supports(record, name: str) -> bool:
    """Whether the database says that a record's op takes tensors of a layout."""
    return bool(getattr(record, "supports_sparse" if name == "coo" else f"supports_sparse_{name}", False))


def cases():
    """All (record, name of a layout, dtype) for which the database has samples."""
    for record in op_db:
        for name in LAYOUTS:
            if supports(record, name) and resolve(record) is not None:
                known = record.supported_dtypes("cpu")
                yield from ((record, name, dtype) for dtype in DTYPES if dtype in known)


def samples(record, name: str, dtype) -> list:
    """The samples of a case; where the database has no sparse ones, dense ones converted (as PyTorch's tests do)."""
    torch.manual_seed(0)
    try:
        made = list(getattr(record, f"sample_inputs_sparse_{name}")("cpu", dtype, requires_grad=False))
    except NotImplementedError:
        made = []
    except RuntimeError as error:
        if "is not supported" not in str(error):  # the database says so by an error
            return []
        made = []
    if not made:
        made = [s for s in map(partial(_converted, name=name), record.sample_inputs("cpu", dtype)) if s is not None]
    return made[:: max(1, len(made) // PER_RECORD)]


def _converted(sample, name: str):
    """A dense sample with its first tensor sparse; None if torch cannot convert it."""
    if not isinstance(sample.input, torch.Tensor) or (name != "coo" and sample.input.ndim < 2):
        return None
    block = (1, 1) if name in ("bsr", "bsc") else None
    try:
        sample.input = sample.input.detach().to_sparse(layout=LAYOUTS[name], blocksize=block)
    except (RuntimeError, NotImplementedError):
        return None
    return sample


def variants(record):
    """The forms of an op, each for both libraries: function, method, in place."""
    ours = resolve(record)
    yield "function", record.op, ours
    for what, theirs in (("method", record.method_variant), ("in place", record.inplace_variant)):
        mine = None if theirs is None else translate(theirs) or getattr(ours_tensor(), theirs.__name__, None)
        if mine is not None:
            yield what, theirs, mine


def ours_tensor():
    """tensorgrad's class of tensors."""
    import tensorgrad as tg

    return tg.Tensor


def compare(sample, theirs, mine, what: str) -> list[str]:
    """How the two libraries differ on a sample: in results, or in the type of the error."""
    given = (sample.input, tuple(sample.args), dict(sample.kwargs))
    first, args, kwargs = copied(given)
    own_first, own_args, own_kwargs = to_tg(given)
    where = f"   ({shown(given[0])} {plain_layout(given[0])}, {shown(given[1])}, {given[2]})"
    try:
        expected = theirs(first, *args, **kwargs)
    except Exception as error:
        kinds = (type(error), RuntimeError) if isinstance(error, NotImplementedError) else (type(error),)
        try:
            mine(own_first, *own_args, **own_kwargs)
        except kinds:
            return []
        except Exception as other:
            expected = f"expected {type(error).__name__}: {error!s:.100}"
            return [f"{what}: {type(other).__name__}: {other!s:.100}, {expected}" + where]
        return [f"{what}: no error, expected {type(error).__name__}: {error!s:.100}" + where]
    try:
        actual = mine(own_first, *own_args, **own_kwargs)
    except Exception as error:
        return [f"{what}: {type(error).__name__}: {error!s:.150}" + where]
    return [d + where for d in differences(expected, actual, what)]


def plain_layout(value) -> str:
    """The layout of a tensor, for messages."""
    return str(getattr(value, "layout", "")).removeprefix("torch.")


def run(record, name: str, dtype, every: int = 1, start: int = 0) -> tuple[int, list[str]]:
    """How many samples were run, and what differs."""
    count, problems = 0, []
    for k, sample in enumerate(samples(record, name, dtype)):
        if (k + start) % every:
            continue
        for what, theirs, mine in variants(record):
            if what == "in place" and sample.broadcasts_input:
                continue
            count += 1
            problems += compare(sample, theirs, mine, f"{what} of {dtype}")[:1]
    return count, problems


def main(names: list[str]) -> None:
    """Prints counts by op and layout, and for named ops what differs."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    counts: dict[str, Counter] = {}
    for record, name, dtype in cases():
        if names and record.name not in names:
            continue
        count, problems = run(record, name, dtype)
        row = counts.setdefault(record.name, Counter())
        row[name] += count
        row[name, "wrong"] += len(problems)
        for problem in problems[:4] if names else ():
            print(f"{record.name} {name}: {problem}")
    total = wrong = 0
    for op, row in counts.items():
        total += sum(row[name] for name in LAYOUTS)
        wrong += sum(row[name, "wrong"] for name in LAYOUTS)
        print(f"{op:24}" + "".join(f"  {n}: {row[n] - row[n, 'wrong']}/{row[n]}" for n in LAYOUTS if row[n]))
    print(f"{total - wrong} of {total} calls agree with torch")


if __name__ == "__main__":
    main(sys.argv[1:])
