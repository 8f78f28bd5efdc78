"""PyTorch's samples of ops with distributed tensors: the results are those of ordinary tensors, or the error is clear.

Whatever a function does with arrays, it may never mistake one rank's piece for the whole.
"""

import os
import sys
import warnings

import tensorgrad as torch
import tensorgrad.distributed as dist
from tensorgrad.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from tests.conformance import opdb
from tests.conformance.opdb_bridge import leaves, to_tg

# What these return is not determined, or is this process's memory.
LEFT_OUT = {"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted", "resize_",
            "resize_as_", "as_strided", "as_strided.partial_views", "as_strided_scatter", "as_strided_copy",
            "linalg.lstsq", "linalg.lstsq.grad_oriented"}  # fmt: skip
CLEAR = ("mixed torch.Tensor and DTensor", "not supported for distributed tensors")


def nested(value, convert):
    if isinstance(value, torch.Tensor):
        return convert(value)
    if isinstance(value, tuple | list) and not isinstance(value, torch.Size):
        items = [nested(item, convert) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return {k: nested(v, convert) for k, v in value.items()} if isinstance(value, dict) else value


def equal(a, b):
    if isinstance(a, torch.Tensor):
        if not isinstance(b, torch.Tensor) or tuple(a.shape) != tuple(b.shape) or a.dtype is not b.dtype:
            return False
        b = b.full_tensor() if isinstance(b, DTensor) else b
        return torch.allclose(a.detach(), b.detach(), rtol=2e-5, atol=2e-5, equal_nan=True)
    if isinstance(a, tuple | list):
        return isinstance(b, tuple | list) and len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if callable(a):  # a module or function that was made twice
        return type(a) is type(b)
    return a == b or (a != a and b != b)


def check(call, mesh, wanted_placement):
    """A line that says what is wrong; "" if nothing is, None if the sample tells nothing."""

    def placed(x):
        dim = 0 if wanted_placement == "first" else x.ndim - 1
        placement = Replicate() if wanted_placement == "whole" or not x.ndim else Shard(dim)
        return distribute_tensor(x.detach(), mesh, [placement], src_data_rank=None)

    try:
        plain, given = to_tg((call.inputs, call.kwargs)), to_tg((call.inputs, call.kwargs))
        plain = nested(plain, lambda x: x.detach())
        wanted = call.ours(arguments=plain)
    except Exception:
        return None
    if any(t.layout is not torch.strided for t in leaves(given)):
        return None  # sparse tensors cannot be distributed
    given = nested(given, placed)
    if not any(isinstance(t, DTensor) for t in leaves(given)):
        return None
    where = f"{opdb.record_name(call.record)} {wanted_placement}: {call}"
    try:
        result = call.ours(arguments=given)
    except Exception as error:
        if any(text in str(error) for text in CLEAR):
            return "error"
        return f"{where}: {type(error).__name__}: {str(error)[:200]}"
    if not equal(wanted, result):
        shown = [(t.placements, t.to_local()) for t in leaves(result) if isinstance(t, DTensor)] or result
        return f"{where}: wanted {wanted}, got {shown}"[:1500]
    return "" if equal(plain, given) else f"{where}: the arguments were changed"


def main(names, samples, first=""):
    dist.init_process_group("gloo")
    mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    checked, refused, problems = set(), set(), []
    for record in list(opdb.records())[:: int(os.environ.get("EVERY", "1"))]:
        name = opdb.record_name(record)
        if (names and record.name not in names and name not in names) or name in LEFT_OUT:
            continue
        if opdb.resolve(record) is None:
            continue
        dtype = next((d for d in opdb.DTYPES if d in record.dtypes), None)
        if dtype is None or record.name < first:
            continue
        for call in opdb.calls(record, dtype, limit=samples, elements=2000):
            for placement in ("whole", "first", "last"):
                found = check(call, mesh, placement)
                everyones = [None] * dist.get_world_size()
                dist.all_gather_object(everyones, found)
                if len(set(everyones)) > 1:
                    print(f"the ranks differ: {everyones}", flush=True)
                if found == "":
                    checked.add(name)
                elif found == "error":
                    refused.add(name)
                elif found is not None:
                    problems.append(found)
                    print(found, flush=True)
    if dist.get_rank() == 0:
        print("\n".join(problems))
        print(f"{len(checked)} functions agree, {len(refused)} refuse some samples: {sorted(refused)}")
    assert not problems, f"{len(problems)} problems"
    dist.destroy_process_group()


main(set(sys.argv[2:]), int(sys.argv[1]), os.environ.get("FIRST", ""))  # FIRST: go on from this name
