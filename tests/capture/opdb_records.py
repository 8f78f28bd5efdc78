"""Records of PyTorch's op database, recorded and run again: on the same inputs, and on others of the same metadata.

Their results, and the gradients of their inputs, have to be those of the program itself, to the bit.

    python -m tests.capture.opdb_records [--gradients] [NAME ...]
"""

from __future__ import annotations

import sys
import traceback
import warnings
from collections import Counter
from itertools import islice

import numpy as np
import torch as reference

import tensorgrad as torch
from tensorgrad.capture import GuardError, ReadError, record
from tensorgrad.capture.values import mapped, tensors
from tests.capture.compare import bits
from tests.conformance import opdb
from tests.conformance.opdb_bridge import copied, to_tg

# Records that are not compared, by what they do.
APART = {
    **dict.fromkeys(opdb.VALUES_UNDEFINED | {"new_empty_strided"}, "the values are undefined"),
    "nn.functional.triplet_margin_with_distance_loss": "functions among its arguments are other ones in each call",
    "as_strided.partial_views": "reads beyond its input, which other inputs do not have",
}
DTYPES = (reference.float32, reference.int64, reference.bool, reference.complex64)


def others(values):
    """Other values of the same metadata: the elements of each tensor in another order."""
    generator = np.random.default_rng(1)

    def of(t):
        array = t.detach().numpy().copy(order="K")
        elements = array.reshape(-1).copy()
        generator.shuffle(elements)
        array[...] = elements.reshape(array.shape)
        made = torch.from_numpy(array)
        if made.stride() != t.stride() and 0 not in t.stride():
            made = torch.empty_strided(t.shape, t.stride(), dtype=t.dtype).copy_(made)
        return made.requires_grad_(t.requires_grad)

    return mapped(values, of)


def program_of(function, gradients: bool):
    """A record as a program: its result, and the gradients of its inputs."""

    def program(*args, **kwargs):
        result = function(*args, **kwargs)
        if not gradients:
            return result
        inputs = [t for t in tensors((args, kwargs)) if t.requires_grad]
        roots = [t for t in tensors(result) if t.requires_grad]
        if not roots:
            return result
        loss = sum((t.abs() * 0.5).sum() for t in roots)
        return result, torch.autograd.grad(loss, inputs, allow_unused=True)

    return program


def check(case, gradients: bool = False, limit: int = 1, seen: Counter | None = None) -> list[str]:
    """What is wrong with a record. `seen` counts what became of the calls."""
    name, function = opdb.record_name(case), opdb.resolve(case)
    dtype = next((d for d in DTYPES if d in case.dtypes), None)
    seen = Counter() if seen is None else seen
    if name in APART or dtype is None or function is None or (gradients and not case.supports_autograd):
        return []
    problems = []
    program = program_of(function, gradients)
    samples = case.sample_inputs("cpu", dtype, requires_grad=gradients and dtype is not reference.int64)
    for sample in islice(samples, limit):
        call = opdb.Call(case, sample)

        def given(call=call):
            return to_tg((copied(call.inputs), copied(call.kwargs)))

        def run(function, values):
            torch.manual_seed(0)
            args, kwargs = values
            return bits(function(*args, **kwargs))

        try:
            expected = run(program, given())
        except Exception:
            seen["raises"] += 1
            continue
        try:
            torch.manual_seed(0)
            args, kwargs = given()
            recording = record(program, *args, **kwargs)
        except (ReadError, NotImplementedError) as error:
            seen[f"refused: {name}: {str(error)[:150]}"] += 1
            continue
        except Exception as error:
            problems.append(f"recording: {''.join(traceback.format_exception(error)[-4:])}")
            continue
        if repr(bits(recording.result)) != repr(expected):
            problems.append("the result of the recorded run differs")
        for what, make in (("again", given), ("others", lambda given=given: others(given()))):
            try:
                wanted = run(program, make())
            except Exception:
                continue
            try:
                found = run(recording, make())
            except GuardError:
                seen[f"checked ({what})"] += 1
                if what == "again":
                    problems.append("a check fails for the values that were recorded")
                continue
            except Exception as error:
                problems.append(f"{what}: {type(error).__name__}: {str(error)[:300]}\n{recording.graph_module.code}")
                continue
            seen[f"equal ({what})"] += 1
            if repr(wanted) != repr(found):
                problems.append(f"{what}: differs\n{recording.graph_module.code}")
    return problems


def main(arguments: list[str]) -> int:
    """Checks the records that are named, or all."""
    warnings.simplefilter("ignore")
    names, gradients, seen, wrong = [a for a in arguments if a[0] != "-"], "--gradients" in arguments, Counter(), 0
    for case in opdb.records():
        if not names or opdb.record_name(case) in names:
            problems = check(case, gradients, limit=2, seen=seen)
            wrong += bool(problems)
            for problem in problems:
                print(f"{opdb.record_name(case)}: {problem if names else problem[:400]}", flush=True)
    print(f"records that are wrong: {wrong}", *(f"{count:5} {what}" for what, count in sorted(seen.items())), sep="\n")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
