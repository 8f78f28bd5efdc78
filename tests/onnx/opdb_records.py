"""Records of PyTorch's op database as ONNX files: what onnxruntime computes is what the program does.

    python -m tests.onnx.opdb_records [--calls N] [NAME ...]

A record counts if its operators have a translation and onnxruntime has kernels for its dtypes; what became of the
others is printed.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter
from itertools import islice
from typing import Any

import numpy as np
import torch as reference

import tensorgrad as torch
from tensorgrad.capture.values import mapped, tensors
from tests.conformance import opdb
from tests.conformance.opdb_bridge import copied, to_tg

# Records that are not compared, by what they do.
APART = dict.fromkeys(opdb.VALUES_UNDEFINED, "the values are undefined")
DTYPES = (reference.float32, reference.int64, reference.bool)
TOLERANCE = 1e-5
NOT_EXCHANGED = {torch.bfloat16, torch.complex64, torch.complex128}
# onnxruntime's exceptions, by name: it has no kernel for an operator with these dtypes.
ABSENT = {"NotImplemented"}


def check(case: Any, limit: int = 1, seen: Counter | None = None) -> list[str]:
    """What is wrong with a record. `seen` counts what became of the calls."""
    name, function = opdb.record_name(case), opdb.resolve(case)
    dtype = next((d for d in DTYPES if d in case.dtypes), None)
    seen = Counter() if seen is None else seen
    if name in APART or dtype is None or function is None:
        return []
    problems = []
    for sample in islice(case.sample_inputs("cpu", dtype, requires_grad=False), limit):
        call = opdb.Call(case, sample)

        def inputs(call: Any = call) -> tuple[list, Any]:
            given = to_tg((copied(call.inputs), copied(call.kwargs)))
            return list(tensors(given)), given

        given = inputs()[1]

        def program(*leaves: Any, given: Any = given) -> Any:
            following = iter(leaves)
            args, kwargs = mapped(given, lambda t: next(following))
            return function(*args, **kwargs)

        what, problem = _compared(name, program, lambda inputs=inputs: inputs()[0])
        seen[what] += 1
        problems += [problem] if problem else []
    return problems


def _compared(name: str, program: Any, leaves: Any) -> tuple[str, str]:
    """What became of a call, and what is wrong with it."""
    try:
        with torch.no_grad():
            expected, again = list(tensors(program(*leaves()))), list(tensors(program(*leaves())))
    except Exception:
        return "raises", ""
    if not leaves() or not expected:
        return "without tensors", ""
    if any(t.layout is not torch.strided for t in (*leaves(), *expected)):
        return "not strided", ""
    if any(t.dtype in NOT_EXCHANGED for t in (*leaves(), *expected)):
        return "a dtype that onnxruntime does not exchange with NumPy", ""
    if not all(t.numel() for t in leaves()):
        return "no elements", ""  # onnxruntime's own answers
    if any(_different(a, b) for a, b in zip(again, expected, strict=True)):
        return "random", ""
    try:
        exported = torch.onnx.export(program, tuple(leaves()))
    except torch.onnx.errors.UnsupportedOperatorError as error:
        return f"no translation: {str(error).split(' (')[0][:60]}", ""
    except RuntimeError as error:
        if "is read as" in str(error):
            return "reads a value", ""
        if str(error).startswith("capture:"):
            return "cannot be recorded", ""
        return "error", f"export: {type(error).__name__}: {error}"
    except Exception as error:
        return "error", f"export: {type(error).__name__}: {error}"
    try:
        found = exported(*leaves())
    except Exception as error:
        if type(error).__name__ in ABSENT:
            return "no kernel in onnxruntime", ""
        return "error", f"onnxruntime: {type(error).__name__}: {error}"
    if len(found) != len(expected):
        return "different", f"{len(found)} results in place of {len(expected)}"
    for i, (a, b) in enumerate(zip(found, expected, strict=True)):
        why = _different(a, b)
        if why and any(t.is_floating_point() and t.isnan().any() for t in leaves()):
            return "nan, whose place ONNX leaves open", ""
        if why:
            return "different", f"result {i}: {why}"
    return "equal", ""


def _different(found: Any, expected: Any) -> str:
    """How far two tensors differ, in words; "" if they do not."""
    if (found.shape, found.dtype) != (expected.shape, expected.dtype):
        return f"{found.dtype} {tuple(found.shape)} in place of {expected.dtype} {tuple(expected.shape)}"
    a, b = found.numpy(), expected.detach().resolve_conj().resolve_neg().numpy()
    scale = max(1.0, float(np.nan_to_num(np.abs(b), posinf=0).max())) if b.size and b.dtype.kind in "fc" else 1.0
    if np.allclose(a, b, rtol=TOLERANCE, atol=TOLERANCE * scale, equal_nan=True):
        return ""
    with np.errstate(all="ignore"):
        return f"up to {np.nanmax(np.abs(a.astype(complex) - b.astype(complex))):.3g} from the program's"


def main(arguments: list[str] | None = None) -> int:
    """Checks the records that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--calls", type=int, default=3, help="of each record, at most (%(default)s)")
    given = parser.parse_args(arguments)
    names = given.names
    warnings.simplefilter("ignore")
    seen: Counter = Counter()
    right = wrong = 0
    for case in opdb.records():
        if not names or opdb.record_name(case) in names:
            before = seen["equal"]
            problems = check(case, given.calls, seen)
            wrong += bool(problems)
            right += seen["equal"] > before and not problems
            for problem in problems:
                print(f"{opdb.record_name(case)}: {problem if names else problem[:400]}", flush=True)
    print(
        f"records that are right: {right}, wrong: {wrong}",
        *(f"{count:5} {what}" for what, count in sorted(seen.items())),
        sep="\n",
    )
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
