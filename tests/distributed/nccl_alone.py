"""Every operation of NCCL in a group of one rank: the results are copies."""

from tests.distributed import devices

devices.install()

import time  # noqa: E402

import cupy  # noqa: E402

import tensorgrad.distributed as dist  # noqa: E402
from tensorgrad.distributed.nccl.communicator import NCCLCommunicator, available  # noqa: E402

DTYPES = ("uint8", "int8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64", "complex64")


def wait(request):
    """Waits until the GPU has done an operation."""
    end = time.monotonic() + 120
    while not request.completed():
        assert time.monotonic() < end, "the GPU has not done it in 120 seconds"
        time.sleep(1e-4)


def check(found, wanted):
    assert found.dtype == wanted.dtype and found.get().tolist() == wanted.get().tolist(), (found, wanted)


assert available()
print("NCCL", cupy.cuda.nccl.get_version(), "built for", cupy.cuda.nccl.get_build_version())
communicator = NCCLCommunicator(dist.HashStore(), 0, 1)
for dtype in DTYPES:
    x = cupy.arange(12).astype(dtype)
    for op in ("SUM", "PROD", "MIN", "MAX") if x.dtype.kind != "c" else ("SUM",):
        y, z = x.copy(), cupy.zeros_like(x)
        wait(communicator.all_reduce(y, op))
        check(y, x)
        wait(communicator.reduce(y, op, 0))
        wait(communicator.reduce_scatter(y, z, [12], op))
        check(z, x)
    if x.dtype.kind == "c":
        continue
    y, z = x.copy(), cupy.zeros_like(x)
    wait(communicator.broadcast(y, 0))
    check(y, x)
    for operation in (
        lambda y=y, z=z: communicator.all_gather(y, z),
        lambda y=y, z=z: communicator.gather(y, z, 0),
        lambda y=y, z=z: communicator.scatter(y, z, 0),
        lambda y=y, z=z: communicator.all_to_all(y, [12], z, [12]),
    ):
        z[...] = 0
        wait(operation())
        check(z, x)
    z[...] = 0
    with communicator.together():
        requests = [communicator.send(y, 0, 0), communicator.receive(z, 0, 0)]
    for request in requests:
        wait(request)
    check(z, x)

# work that is still in the queue of the current stream is done first
large = cupy.ones(1 << 24, "float32")
for _ in range(20):
    large *= 2
wait(communicator.all_reduce(large, "SUM"))
assert float(large[0]) == 2.0**20
communicator.free()
