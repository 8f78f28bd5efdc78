"""A table of checks that every rank runs: `python table.py tensorgrad|torch`. The results are printed as JSON.

What runs under both libraries is compared with PyTorch's own gloo group; cases in `OWN` check themselves.
"""

import json
import os
import sys
import warnings
from datetime import datetime, timedelta

from tests.distributed.ending import end

if sys.argv[1] == "tensorgrad":
    from tests.distributed import devices

    devices.install()
    import tensorgrad as torch
    import tensorgrad.distributed as dist
else:
    import torch
    import torch.distributed as dist

warnings.simplefilter("ignore")
ON_GPU = sys.argv[1] == "tensorgrad" and "DEVICE" in os.environ
if ON_GPU:
    torch.set_default_device("cuda")
dist.init_process_group("nccl" if ON_GPU else "gloo", timeout=timedelta(seconds=100))
rank, size = dist.get_rank(), dist.get_world_size()
O = dist.ReduceOp
BOTH, OWN = {}, {}


def both(function):
    BOTH[function.__name__] = function


def own(function):
    OWN[function.__name__] = function


def plain(value):
    """Something that JSON can hold, and that is equal for equal tensors."""
    if isinstance(value, torch.Tensor):
        values = torch.view_as_real(value) if value.dtype.is_complex else value
        return [str(value.dtype).replace("tensorgrad", "torch"), list(value.shape), values.double().tolist()]
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value if isinstance(value, (int, float, str, bool, type(None))) else str(value)


def sample(dtype, *shape):
    """Small values that differ by rank."""
    count = 1
    for length in shape:
        count *= length
    values = (torch.arange(count) * 3 + rank * 5) % 7
    return (values % 2 == 0).reshape(shape) if dtype == torch.bool else values.to(dtype).reshape(shape)


def fails(function):
    """The type and the first line of the error of a call; nothing must have been sent."""
    try:
        function()
    except Exception as error:
        return [type(error).__name__, str(error).split("\n")[0]]
    return "no error"


FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTEGERS = [torch.uint8, torch.int8, torch.int32, torch.int64]
EVERY = [torch.bool, *INTEGERS, *FLOATS, torch.complex64, torch.complex128]
NEW = [torch.int16, torch.uint16, torch.uint32, torch.uint64]  # gloo does not add these


@both
def all_reduce_of_every_dtype():
    results = []
    for dtype in EVERY:
        for op in ("SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"):
            if (dtype.is_complex and op != "SUM") or (dtype in FLOATS and op.startswith("B")):
                continue
            x = sample(dtype, 2, 3)
            if ON_GPU and op.startswith("B"):  # NCCL has no such operations: on the CPU, by MPI
                assert fails(lambda x=x, op=op: dist.all_reduce(x, getattr(O, op)))[1].endswith("with NCCL")
                x = x.cpu()
            dist.all_reduce(x, getattr(O, op))
            results.append(x)
    return results


@both
def all_reduce_average():
    x = sample(torch.float32, 5)
    dist.all_reduce(x, O.AVG)
    return x


@both
def moving_every_dtype():
    results = []
    for dtype in EVERY:
        x = sample(dtype, 2, 3)
        gathered = [torch.zeros_like(x) for _ in range(size)]
        dist.all_gather(gathered, x)
        dist.broadcast(x, size - 1)
        results += [x, gathered]
        if dtype.is_complex:  # PyTorch's own gather fails: it views one side as real numbers
            continue
        y = sample(dtype, 4)
        rows = [torch.zeros_like(y) for _ in range(size)] if rank == 0 else None
        dist.gather(y, rows, dst=0)
        z = torch.zeros_like(y)
        dist.scatter(z, [(y + i).to(dtype) for i in range(size)] if rank == 0 else None, src=0)
        results += [rows, z]
    return results


@both
def reduce_to_one():
    x = sample(torch.float64, 3)
    dist.reduce(x, size - 1, O.MAX)
    return x if rank == size - 1 else None


@both
def strides_and_empty():
    x = sample(torch.float32, 2, 3).t()
    dist.all_reduce(x)
    z = torch.empty(0, 3)
    dist.all_reduce(z)
    w = torch.tensor(float(rank))
    dist.all_reduce(w)
    out = [torch.zeros(3, 2).t() for _ in range(size)]
    dist.all_gather(out, sample(torch.float32, 2, 3))
    return x, z, w, out


@both
def into_one_tensor():
    x = sample(torch.float32, 2, 3)
    a = torch.zeros(2 * size, 3)
    dist.all_gather_into_tensor(a, x)
    whole = sample(torch.float32, 2 * size, 3)
    part = torch.zeros(2, 3)
    dist.reduce_scatter_tensor(part, whole)
    return a, part


@both
def reduce_scatter_lists():
    part = torch.zeros(3)
    dist.reduce_scatter(part, [sample(torch.float32, 3) + i for i in range(size)])
    return part


@both
def all_to_all_forms():
    x = sample(torch.int64, 2 * size, 2)
    y = torch.zeros_like(x)
    dist.all_to_all_single(y, x)
    # rank r sends i + 1 rows to rank i
    sizes = [i + 1 for i in range(size)]
    z = torch.zeros((rank + 1) * size, 2)
    dist.all_to_all_single(z, sample(torch.float32, sum(sizes), 2), [rank + 1] * size, sizes)
    outputs = [torch.zeros(2) for _ in range(size)]
    dist.all_to_all(outputs, [sample(torch.float32, 2) + 10 * i for i in range(size)])
    return y, z, outputs


@both
def ring():
    right, left = (rank + 1) % size, (rank - 1) % size
    x, y = sample(torch.float32, 4), torch.zeros(4)
    works = [dist.isend(x, right, tag=3), dist.irecv(y, left, tag=3)]
    for work in works:
        work.wait()
    z = torch.zeros(4)
    batch = [dist.P2POp(dist.isend, x, right), dist.P2POp(dist.irecv, z, left)]
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    return y, z


@both
def send_and_receive_from_any():
    x = sample(torch.bfloat16, 3)
    if ON_GPU:
        x = x.cpu()
    if rank == 0:
        return sorted(dist.recv(x) for _ in range(size - 1))
    dist.send(x, 0)


@both
def asynchronous():
    tensors = [torch.full((1000,), float(rank + i)) for i in range(5)]
    works = [dist.all_reduce(x, async_op=True) for x in tensors]
    results = [work.wait() for work in reversed(works)]
    work = dist.barrier(async_op=True)
    work.wait()
    return results, [x[0].item() for x in tensors], works[0].is_completed(), works[0].is_success(), works[0].exception()


@both
def objects():
    gathered, mine, listed = [None] * size, [None], [{"a": 1}, "text", 3.5] if rank == 0 else [None] * 3
    dist.all_gather_object(gathered, {"rank": rank, "long": "x" * 100 * rank})
    dist.broadcast_object_list(listed, 0)
    dist.scatter_object_list(mine, [f"for {i}" for i in range(size)] if rank == 0 else [None] * size, 0)
    rows = [None] * size if rank == size - 1 else None
    dist.gather_object(("tuple", rank), rows, dst=size - 1)
    return [str(item) for item in (gathered, listed, mine, rows)]


@both
def object_messages():
    if rank == 0:
        dist.send_object_list(["hello", 7], 1)
    elif rank == 1:
        found = [None, None]
        sender = dist.recv_object_list(found, 0)
        return sender, str(found)


@both
def groups():
    pair = dist.new_group([0, 1])
    rest = dist.new_group([size - 1])
    x = torch.tensor([float(rank + 1)])
    if rank < 2:
        dist.all_reduce(x, group=pair)
    facts = [dist.get_rank(pair), dist.get_world_size(pair), dist.get_rank(rest), dist.get_world_size(rest)]
    if rank < 2:
        facts += [dist.get_process_group_ranks(pair), dist.get_backend(pair), dist.get_global_rank(pair, 1)]
    last = torch.tensor([2.0])
    dist.all_reduce(last, group=rest)
    reverse = dist.new_group(list(range(size))[::-1], sort_ranks=False)
    y = torch.tensor([float(rank)])
    dist.broadcast(y, group=reverse, group_src=0)
    mine, everyone = dist.new_subgroups(group_size=1)
    facts += [dist.get_rank(reverse), dist.get_world_size(mine), len(everyone), dist.get_process_group_ranks(mine)]
    return facts, x, last, y


@both
def gradients_flow_through_collectives():
    from importlib import import_module

    functional = import_module(f"{dist.__name__}.nn.functional")

    def case(function):
        x = (torch.arange(4.0) + rank + 1).requires_grad_()
        result = function(x)
        result = torch.cat([part.reshape(-1) for part in result]) if isinstance(result, tuple) else result
        (result**2 * (rank + 1)).sum().backward()
        return result.detach(), x.grad

    return [
        case(functional.all_reduce),
        case(lambda x: functional.broadcast(x, 0)),
        case(lambda x: functional.reduce(x, 0) * (rank == 0)),  # gloo changes what the others have
        case(functional.all_gather),
        case(functional.gather),
        case(lambda x: functional.scatter([x * (i + 1) for i in range(size)])),
        case(lambda x: functional.reduce_scatter(torch.zeros(4), [x * (i + 1) for i in range(size)])),
        case(
            lambda x: functional.all_to_all([torch.zeros(4) for _ in range(size)], [x * (i + 1) for i in range(size)])
        ),
        case(lambda x: functional.all_to_all_single(torch.zeros(size, 4), torch.stack([x * 2] * size))),
    ]


@both
def meshes():
    from importlib import import_module

    init_device_mesh = import_module(f"{dist.__name__}.device_mesh").init_device_mesh
    mesh = init_device_mesh("cpu", (size, 1), mesh_dim_names=("dp", "tp"))
    x = torch.ones(1)
    dist.all_reduce(x, group=mesh["dp"].get_group())
    y = torch.ones(1)
    dist.all_reduce(y, group=mesh.get_group("tp"))
    facts = [mesh.shape, mesh.size(), mesh.size(0), mesh.ndim, mesh.mesh_dim_names, mesh.get_coordinate(), repr(mesh)]
    part = mesh["dp"]
    facts += [part.shape, part.mesh.tolist(), part.get_local_rank(), mesh.get_local_rank("tp"), mesh.get_rank()]
    swapped = mesh["tp", "dp"]
    return x, y, facts, swapped.shape, swapped.mesh.tolist(), mesh == mesh["dp", "tp"], len(mesh.get_all_groups())


@both
def leaves_that_require_grad():
    x = torch.ones(2, requires_grad=True)
    with torch.no_grad():
        dist.all_reduce(x)
    return x.detach(), x.requires_grad


@both
def errors():
    x, group = torch.ones(2), dist.new_group(list(range(size)))
    calls = [
        lambda: dist.all_reduce([1]),
        lambda: dist.all_gather(x, x),
        lambda: dist.all_gather([x], x),
        lambda: dist.all_gather([torch.ones(2), torch.ones(3), torch.ones(2)][:size], x),
        lambda: dist.all_gather([x.double()] * size, x),
        lambda: dist.all_reduce(torch.ones(2, dtype=torch.complex64), O.MAX),
        lambda: dist.broadcast(x),
        lambda: dist.broadcast(x, 0, group_src=0),
        lambda: dist.broadcast(x, 9),
        lambda: dist.reduce(x, -1),
        lambda: dist.gather(x, [x] if rank else None, dst=0),
        lambda: dist.gather(x, [x], dst=rank),
        lambda: dist.scatter(x, [x] if rank else None, src=0),
        lambda: dist.scatter(x, [x], src=rank),
        lambda: dist.reduce_scatter(x, [x]),
        lambda: dist.all_to_all([x], [x]),
        lambda: dist.all_to_all_single(torch.ones(size), torch.ones(size), [1], [1]),
        lambda: dist.all_to_all_single(torch.ones(size), torch.ones(size), [2] * size, [2] * size),
        lambda: dist.send(x, rank),
        lambda: dist.new_group([0, 0]),
        lambda: dist.new_group([0, 9]),
        lambda: dist.new_subgroups(2 * size),
        lambda: dist.init_process_group("gloo"),
        lambda: dist.get_global_rank(group, 9),
        lambda: dist.get_group_rank(group, 9),
        lambda: dist.P2POp(dist.send, x, 0),
        lambda: dist.batch_isend_irecv([1]),
        lambda: dist.all_reduce(x, O.BAND),
        lambda: dist.all_reduce(torch.ones(2, dtype=torch.int32), O.AVG),
    ]
    results = [fails(call) for call in calls]
    for index in (23, 24):  # they name an object by its address
        results[index][1] = results[index][1].split("<")[0]
    return results


@own
def dtypes_that_gloo_does_not_add():
    for dtype in NEW:
        x = torch.tensor([1, 2, 3]).to(dtype)
        if ON_GPU and dtype in (torch.int16, torch.uint16):  # nor can NCCL
            x = x.cpu()
        dist.all_reduce(x)
        assert x.dtype == dtype and x.tolist() == [size, 2 * size, 3 * size]


@own
def every_other_collective_on_every_dtype():
    def told(sender, receiver, dtype):  # three small numbers, not in one row of memory
        values = torch.tensor([[sender, -1], [receiver, -1], [1, -1]], device="cpu").to(dtype)
        return (values.cuda() if ON_GPU else values)[:, 0]

    def holes(dtype, *shape):
        return torch.zeros(*shape, 2, dtype=dtype)[..., 0]

    right, left = (rank + 1) % size, (rank - 1) % size
    for dtype in [*EVERY, *NEW]:
        if ON_GPU and dtype in (torch.bool, torch.int16, torch.uint16, torch.complex64, torch.complex128):
            continue
        senders = torch.stack([told(i, rank, dtype) for i in range(size)])
        mine = torch.stack([told(rank, i, dtype) for i in range(size)])
        total = senders[0].clone()  # in the order of ranks
        for row in senders[1:]:
            total = (total | row) if dtype == torch.bool else (total.double() + row.double()).to(dtype) if (
                not dtype.is_complex) else total + row  # fmt: skip
        rows, x, y = holes(dtype, size, 3), holes(dtype, 3), holes(dtype, 3)
        x.copy_(told(rank, 0, dtype))
        dist.reduce(x, 0)
        assert rank or torch.equal(x, total), (dtype, x, total)
        dist.all_gather_into_tensor(rows, told(rank, rank, dtype))
        assert all(torch.equal(rows[i], told(i, i, dtype)) for i in range(size)), dtype
        x = holes(dtype, 3)
        dist.reduce_scatter(x, list(mine))
        dist.reduce_scatter_tensor(y, mine)
        assert torch.equal(x, total) and torch.equal(y, total), (dtype, x, y, total)
        outputs, rows = [holes(dtype, 3) for _ in range(size)], holes(dtype, size, 3)
        dist.all_to_all(outputs, list(mine))
        dist.all_to_all_single(rows, mine)
        assert torch.equal(torch.stack(outputs), senders) and torch.equal(rows, senders), dtype
        x, y = holes(dtype, 3), holes(dtype, 3)
        works = [dist.isend(told(rank, right, dtype), right), dist.irecv(x, left)]
        [work.wait() for work in works]
        sent = told(rank, right, dtype)
        operations = [dist.P2POp(dist.isend, sent, right), dist.P2POp(dist.irecv, y, left)]
        [work.wait() for work in dist.batch_isend_irecv(operations)]
        assert torch.equal(x, told(left, rank, dtype)) and torch.equal(y, x), dtype
        if rank == 0:
            dist.send(told(0, 1, dtype), 1)
        elif rank == 1:
            dist.recv(x, 0)
            assert torch.equal(x, told(0, 1, dtype)), dtype


@own
def gathering_what_gloo_does_not():
    for dtype in (torch.int16, torch.complex64, torch.complex128):
        rows = [torch.zeros(2, dtype=dtype) for _ in range(size)] if rank == 0 else None
        dist.gather(torch.tensor([1, rank]).to(dtype), rows, dst=0)
        assert rank or [row.tolist() for row in rows] == [[1, i] for i in range(size)]
        x = torch.zeros(2, dtype=dtype)
        dist.scatter(x, rows)
        assert x.tolist() == [1, rank]


@own
def stacked():
    x, rows = torch.full((2, 3), float(rank)), torch.zeros(size, 2, 3)
    dist.all_gather_into_tensor(rows, x)
    assert rows[:, 0, 0].tolist() == list(range(size))
    part = torch.zeros(2, 3)
    dist.reduce_scatter_tensor(part, rows)
    assert part[0, 0].item() == rank * size


@own
def parts_of_a_tensor():  # gloo writes these to the wrong places
    x = torch.full((4, 4), float(rank))
    dist.broadcast(x[::2, 1:3], size - 1)
    assert x.sum().item() == rank * 12 + (size - 1) * 4 and x[2, 2].item() == size - 1


@own
def premultiplied_sum():
    x = torch.tensor([2.0, 4.0])
    dist.all_reduce(x, O.PREMUL_SUM(0.5))
    assert x.tolist() == [size, 2 * size]
    y = torch.tensor([1.0 + 1j])
    dist.all_reduce(y, O.PREMUL_SUM(2.0))
    assert y.tolist() == [2 * size * (1 + 1j)]


@own
def large_and_exact():
    torch.manual_seed(0)
    parts = [torch.randn(300_001, dtype=torch.float64) for _ in range(size)]
    x = parts[rank].clone()
    dist.all_reduce(x)
    assert torch.allclose(x, sum(parts), rtol=0, atol=1e-12)


@own
def futures_and_callbacks():
    future = dist.all_reduce(torch.ones(3), async_op=True).get_future()
    seen = []
    future.add_done_callback(lambda f: seen.append(f.done()))
    assert future.then(lambda f: f.value()[0].sum().item()).wait() == 3.0 * size
    assert seen == [True]


@own
def progress_without_waiting():
    import time

    work = dist.all_reduce(torch.ones(1_000_000), async_op=True)
    end = time.monotonic() + 100
    while not (work.is_completed() if ON_GPU else work._done) and time.monotonic() < end:
        time.sleep(0.01)  # nothing here polls: the thread does, or else it is the GPU that works
    assert work._done and work.wait()


@own
def versions_count_writes():
    x = torch.ones(2)
    before = x._version
    dist.all_reduce(x)
    assert x._version > before


@own
def not_a_member():
    group = dist.new_group([0])
    if rank:
        assert group == dist.GroupMember.NON_GROUP_MEMBER
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert dist.all_reduce(torch.ones(1), group=group) is None
        assert "does not belong to the given group" in str(caught[0].message)


@own
def groups_that_only_their_members_make():
    if rank:
        rest = dist.new_group(list(range(1, size)), use_local_synchronization=True)
        halves = dist.split_group(rest, [[0], list(range(1, size - 1))] if size > 2 else [[0]])
        x = torch.ones(1)
        dist.all_reduce(x, group=rest)
        assert x.item() == size - 1 and dist.get_world_size(halves) == 1
    for _ in range(2):  # the others have made as many since: all still find each other
        parts = dist.split_group(split_ranks=[[size - 1, 0]])
        assert (parts is None) == (rank not in (0, size - 1))
        if parts is not None:
            y = torch.ones(1)
            dist.all_reduce(y, group=parts)
            assert y.item() == 2 and dist.get_process_group_ranks(parts) == [0, size - 1]
    every = dist.new_group(list(range(size)))
    z = torch.ones(1)
    dist.all_reduce(z, group=every)
    assert z.item() == size
    for wrong in (None, [[]], [[0, 0]], [[0], [0]], [[size]]):
        assert fails(lambda wrong=wrong: dist.split_group(split_ranks=wrong))[0] == "ValueError"


@own
def coalesced():
    a, b = torch.ones(2), torch.ones(3)
    dist.all_reduce_coalesced([a, b])
    assert a.tolist() == [size] * 2 and b.tolist() == [size] * 3
    outputs = [[torch.zeros(2), torch.zeros(3)] for _ in range(size)]
    dist.all_gather_coalesced(outputs, [torch.full((2,), float(rank)), torch.full((3,), float(rank))])
    assert [row[1].tolist() for row in outputs] == [[float(i)] * 3 for i in range(size)]


@own
def monitored():
    dist.monitored_barrier(timeout=timedelta(seconds=100))
    dist.monitored_barrier(timeout=timedelta(seconds=100), wait_all_ranks=True)


@own
def threads():
    import threading

    group, results = dist.new_group(list(range(size))), []

    def work(group, value):
        x = torch.full((100,), float(value))
        for _ in range(20):
            dist.all_reduce(x, O.MAX, group=group)
        results.append(x[0].item())

    both_threads = [threading.Thread(target=work, args=given) for given in ((None, 1.0), (group, 2.0))]
    for thread in both_threads:
        thread.start()
    for thread in both_threads:
        thread.join(100)
    assert sorted(results) == [1.0, 2.0]


@own
def environment_is_clean():
    import os

    assert not [name for name in os.environ if name.startswith("PMI_")]


def traced(name, function):
    """Calls a case, and with the variable TRACE says that it begins."""
    if "TRACE" in os.environ:
        print(f"{datetime.now():%H:%M:%S.%f} {name}", file=sys.stderr, flush=True)
    return function()


results = {name: plain(traced(name, function)) for name, function in BOTH.items()}
if sys.argv[1] == "tensorgrad":
    for name, function in OWN.items():
        traced(name, function)
dist.destroy_process_group()
assert not dist.is_initialized()
if sys.argv[1] == "tensorgrad":  # another group in the same world
    port = int(sys.argv[2])
    dist.init_process_group("mpi", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=size)
    x = torch.ones(1)
    dist.all_reduce(x)
    assert x.item() == size and dist.get_backend() == "mpi"
print(json.dumps(results))
end(dist)
