"""Collectives by NCCL in a group of one process: what one GPU can show of them. (Several: tests/distributed.)

A group of one does not need NCCL, and copies instead; here its connection is put in place by hand, so that NCCL's
library is called with every operation and dtype.
"""

import pytest

import tensorgrad as torch
import tensorgrad.distributed as dist
from tensorgrad import nn
from tensorgrad.distributed.nccl.communicator import NCCLCommunicator, available
from tests.cuda.conftest import MODE

if not available():
    pytest.skip("this CuPy has no NCCL", allow_module_level=True)

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")  # the old names of two collectives

DTYPES = [
    torch.uint8, torch.int8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64,
    torch.complex64, torch.complex128,
]  # fmt: skip
OPERATIONS = [dist.ReduceOp.SUM, dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN, dist.ReduceOp.MAX]


class Counting(NCCLCommunicator):
    """One that counts what it is asked for, to show that nothing was copied past it."""

    def __init__(self, store):
        super().__init__(store, 0, 1)
        self.count = 0

    def _begin(self, *arguments, **options):
        self.count += 1
        return super()._begin(*arguments, **options)


@pytest.fixture(scope="module")
def connection():
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    group = dist.group.WORLD
    group.gpus = made = Counting(dist.PrefixStore("one", group.store))
    yield made
    made.free()
    dist.destroy_process_group()


@pytest.fixture
def counted(connection):
    """Fails a test in which NCCL did nothing."""
    before = connection.count
    yield connection
    assert connection.count > before


def sample(dtype, *shape):
    count = torch.Size(shape).numel()
    return (torch.arange(count, device="cuda") % 7).to(dtype).reshape(shape)


def assert_same(found, expected):
    assert found.device.type == "cuda" and found.dtype is expected.dtype and torch.equal(found, expected)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_reductions(dtype, counted):
    for op in OPERATIONS[:1] if dtype.is_complex else OPERATIONS:
        x, expected = sample(dtype, 3, 5), sample(dtype, 3, 5)
        dist.all_reduce(x, op)
        assert_same(x, expected)
        dist.reduce(x, 0, op)
        assert_same(x, expected)
        part = torch.zeros_like(x)
        dist.reduce_scatter_tensor(part, x, op)
        assert_same(part, expected)
        part.zero_()
        dist.reduce_scatter(part, [x], op)
        assert_same(part, expected)


def test_average(counted):
    x = sample(torch.float32, 4)
    dist.all_reduce(x, dist.ReduceOp.AVG)
    assert_same(x, sample(torch.float32, 4))


@pytest.mark.parametrize("dtype", [*DTYPES, torch.bool, torch.int16], ids=str)
def test_movements(dtype, counted):
    x, expected = sample(dtype, 2, 3), sample(dtype, 2, 3)
    dist.broadcast(x, 0)
    assert_same(x, expected)
    out = torch.zeros_like(x)
    dist.all_gather_into_tensor(out, x)
    assert_same(out, expected)
    for move in (
        lambda out: dist.all_gather([out], x), lambda out: dist.gather(x, [out], 0),
        lambda out: dist.scatter(out, [x], 0), lambda out: dist.all_to_all_single(out, x),
        lambda out: dist.all_to_all([out], [x]),
    ):  # fmt: skip
        out = torch.zeros_like(x)
        move(out)
        assert_same(out, expected)


def test_tensors_with_gaps_and_empty_ones(counted):
    whole = sample(torch.float32, 4, 6)
    x = whole[:, ::2]
    out = torch.zeros(3, 4, device="cuda").t()
    dist.all_gather([out], x)
    assert_same(out, x)
    dist.all_reduce(x)
    assert_same(whole, sample(torch.float32, 4, 6))
    dist.all_reduce(torch.empty(0, 3, device="cuda"))


def test_in_the_background(counted):
    x = sample(torch.float32, 1000, 1000)
    work = dist.all_reduce(x, async_op=True)
    y = x.new_ones(5) + 1  # other work meanwhile
    work.wait()
    assert_same(x + y[0] - 2, sample(torch.float32, 1000, 1000))
    assert work.is_completed() and work.is_success()
    dist.barrier()


def test_a_message_to_itself(counted):
    sent, received = sample(torch.float32, 100), torch.zeros(100, device="cuda")
    with counted.together():
        requests = [counted.send(sent._array, 0, 0), counted.receive(received._array, 0, 0)]
    torch.cuda.synchronize()
    while not all(request.completed() for request in requests):
        pass
    assert_same(received, sent)


def test_work_that_comes_first_is_waited_for(counted):
    """What is sent is what the current stream computes before; what follows sees the result."""
    x = torch.zeros(1 << (22 if MODE == "cuda" else 16), device="cuda")  # the emulated GPU does all work at once
    for _ in range(50):
        x += 1
    dist.all_reduce(x)
    assert (x * 2).amin().item() == (x * 2).amax().item() == 100


@pytest.mark.parametrize("bucket", [25, 1e-5])
def test_steps_of_ddp(bucket, counted):
    """A replica's losses are those of the plain model."""

    def losses(wrap):
        torch.manual_seed(0)
        made = wrap(nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 2)).to("cuda"))
        optimizer = torch.optim.AdamW(made.parameters(), lr=0.05)
        torch.manual_seed(1)
        x, y, found = torch.randn(16, 6).to("cuda"), torch.randn(16, 2).to("cuda"), []
        for _ in range(4):
            loss = ((made(x) - y) ** 2).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            found.append(loss.item())
        return found

    wrap = nn.parallel.DistributedDataParallel
    found = losses(lambda made: wrap(made, device_ids=[0], bucket_cap_mb=bucket))
    assert found == pytest.approx(losses(lambda made: made), rel=1e-5) and found[-1] < found[0]
