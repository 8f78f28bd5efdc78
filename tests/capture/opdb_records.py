"""Records of PyTorch's op database, recorded and run again: on the same inputs and on others of the same metadata.

    python -m tests.capture.opdb_records [NAME ...]
"""

from __future__ import annotations

import sys
import traceback

import numpy as np
import torch as reference

import tensorgrad as torch
from tensorgrad.capture import GuardError, ReadError, record
from tensorgrad.capture.values import mapped, tensors
from tests.conformance import opdb
from tests.conformance.opdb_bridge import copied, to_tg


def bits(value):
    """What can be compared exactly: the bytes of tensors with shape, strides and dtype, and all else as it is."""
    def of(t):
        array = t.detach().numpy()
        return (tuple(t.shape), t.stride(), t.dtype, np.ascontiguousarray(array).tobytes())

    return mapped(value, of)


def same(a, b) -> bool:
    try:
        return repr(a) == repr(b)
    except Exception:
        return False


def others(values):
    """Other values for the inputs of a call, of the same kind: those of each tensor in another order."""
    generator = np.random.default_rng(1)

    def of(t):
        array = t.detach().numpy().copy()
        flat = array.reshape(-1)
        generator.shuffle(flat)
        made = torch.from_numpy(flat.reshape(array.shape))
        like = torch.empty_strided(t.shape, t.stride(), dtype=t.dtype) if 0 not in t.stride() else None
        if like is not None:
            like.copy_(made)
            made = like
        return made.requires_grad_(t.requires_grad)

    return mapped(values, of)


def calls(record_of_db, dtype, limit):
    samples = opdb.samples(record_of_db, dtype, limit) if hasattr(opdb, "samples") else record_of_db.sample_inputs("cpu", dtype)
    for i, sample in enumerate(samples):
        if i >= limit:
            return
        yield opdb.Call(record_of_db, sample)


def check(record_of_db, dtype=None, limit=2) -> list[str]:
    """What is wrong with a record; reads of values, which raise, are not."""
    dtype = dtype or next((d for d in (reference.float32, reference.int64, reference.bool, reference.complex64) if d in record_of_db.dtypes), None)
    function = opdb.resolve(record_of_db)
    if dtype is None or function is None:
        return []
    problems = []
    for n, call in enumerate(calls(record_of_db, dtype, limit)):
        def given():
            inputs, kwargs = to_tg((copied(call.inputs), copied(call.kwargs)))
            return inputs, kwargs
        def run(inputs, kwargs):
            torch.manual_seed(0)
            return function(*inputs, **kwargs)
        try:
            expected = run(*given())
        except Exception:
            continue
        inputs, kwargs = given()
        try:
            torch.manual_seed(0)
            recording = record(function, *inputs, **kwargs)
        except (ReadError, NotImplementedError) as error:
            check.refused.append((opdb.record_name(record_of_db), str(error)))
            continue
        except Exception as error:
            problems.append(f"sample {n}: recording: {type(error).__name__}: {error}" + "".join(traceback.format_exception(error)[-4:]))
            continue
        if not same(bits(expected), bits(recording.result)):
            problems.append(f"sample {n}: recorded result differs")
            continue
        for what, (i, k) in {"again": given(), "others": others(given())}.items():
            try:
                wanted = run(*mapped((i, k), lambda t: t.detach().clone().requires_grad_(t.requires_grad)))
            except Exception:
                continue
            try:
                torch.manual_seed(0)
                found = recording(*i, **k)
            except GuardError:
                continue
            except Exception as error:
                problems.append(f"sample {n} {what}: {type(error).__name__}: {str(error)[:300]}\n{recording.graph_module.code}")
                continue
            if not same(bits(wanted), bits(found)):
                problems.append(f"sample {n} {what}: differs: {str(bits(wanted))[:300]} {str(bits(found))[:300]}\n{recording.graph_module.code}")
    return problems


check.refused = []

if __name__ == "__main__":
    import warnings; warnings.simplefilter("ignore")
    names = sys.argv[1:]
    bad = 0
    for r in opdb.records():
        if names and opdb.record_name(r) not in names and r.name not in names:
            continue
        for p in check(r):
            bad += 1
            print(opdb.record_name(r), p[:3000] if names else p[:420], flush=True)
    print("bad", bad, "refused", len({n for n, _ in check.refused}))
    for name in sorted({n for n, _ in check.refused}):
        print("  refused:", name, next(m for n, m in check.refused if n == name)[:160])
