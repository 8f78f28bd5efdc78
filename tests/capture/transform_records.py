"""Records of PyTorch's op database under transforms, recorded with kernels as steps: no bit of their results changes.

python -m tests.capture.transform_records [NAME ...]
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from itertools import islice

import torch as reference

import tensorgrad as torch
from tensorgrad.capture import ReadError
from tensorgrad.capture.recorder import Recorder
from tests.capture.compare import bits
from tests.conformance import opdb
from tests.conformance.opdb_bridge import leaves
from tests.conformance.vmap import Batches, stacked

APART = opdb.VALUES_UNDEFINED | {"new_empty_strided"}  # whose values are undefined
SAMPLES = 3


def _loss(run):
    def loss(*tensors):
        return sum(r.abs().sum() for r in run(*tensors) if r.dtype.is_floating_point)

    return loss


def programs(batch: Batches):
    """Transforms of a call: name -> a function without arguments."""
    samples = batch.samples(SAMPLES)
    every = (0,) * len(batch.at)
    tensors, one = stacked(torch, samples, every, False), samples[0]
    differentiable = tuple(i for i, t in enumerate(one) if t.dtype.is_floating_point)
    yield "vmap", lambda: torch.func.vmap(batch.run, randomness="same")(*tensors)
    first = (0, *(None,) * (len(every) - 1))
    yield "vmap of the first", lambda: torch.func.vmap(batch.run, first, randomness="same")(tensors[0], *one[1:])
    if differentiable:
        gradient = torch.func.grad(_loss(batch.run), differentiable)
        yield "vmap of grad", lambda: torch.func.vmap(gradient, randomness="same")(*tensors)
        yield "grad", lambda: gradient(*one)

    def along(*given):
        whole = list(one)
        for i, t in zip(differentiable, given, strict=True):
            whole[i] = t
        return batch.run(*whole)

    points = tuple(one[i] for i in differentiable)
    if points:
        tangents = tuple(p.detach().clone().fill_(0.5) for p in points)
        yield "jvp", lambda: torch.func.jvp(along, points, tangents)


def check(case, limit: int = 2, seen: Counter | None = None) -> list[str]:
    """What is wrong with a record. `seen` counts what became of the programs."""
    name = opdb.record_name(case)
    seen = Counter() if seen is None else seen
    if name in APART or opdb.resolve(case) is None or reference.float32 not in case.dtypes:
        return []
    problems = []
    for call in islice(opdb.calls(case, reference.float32, False, limit, 2000), limit):
        if any(t.layout is not reference.strided for t in leaves((call.inputs, call.kwargs))):
            continue
        batch = Batches(call, torch)
        if not batch.at:
            continue
        for what, program in programs(batch):
            try:
                expected = bits(program())
            except Exception:
                seen[f"{what}: raises"] += 1
                continue
            try:
                with Recorder("note", with_kernels=True):
                    result = program()
            except (ReadError, NotImplementedError):
                seen[f"{what}: refused"] += 1
                continue
            except Exception as error:
                problems.append(f"{what}: {type(error).__name__}: {str(error)[:200]}   ({call})")
                continue
            seen[what] += 1
            if repr(bits(result)) != repr(expected):
                problems.append(f"{what}: other bits   ({call})")
    return problems


def main(names: list[str]) -> int:
    """Checks the records that are named, or all."""
    warnings.simplefilter("ignore")
    seen, wrong = Counter(), 0
    for case in opdb.records():
        if not names or opdb.record_name(case) in names:
            problems = check(case, seen=seen)
            wrong += bool(problems)
            for problem in problems:
                print(f"{opdb.record_name(case)}: {problem}", flush=True)
    print(f"records that are wrong: {wrong}", *(f"{count:5} {what}" for what, count in sorted(seen.items())), sep="\n")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
