"""Which GPUs there are, which one is the current one, and tensors that stay on theirs."""

import copy
import io
import pickle

import pytest

import tensorgrad as torch
from tests.support.compare import saved

several = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")


@pytest.fixture(autouse=True)
def first_device():
    torch.cuda.set_device(0)
    yield
    torch.cuda.set_device(0)
    torch.set_default_device(None)


def test_what_there_is():
    assert torch.cuda.is_available() and torch.cuda.is_initialized()
    assert torch.cuda.device_count() == torch.accelerator.device_count() >= 1
    assert torch.cuda.current_device() == torch.accelerator.current_device_index() == 0
    assert torch.accelerator.current_accelerator() == torch.device("cuda")
    assert torch.version.cuda.count(".") == 1


def test_properties():
    told = torch.cuda.get_device_properties("cuda:0")
    assert told.name == torch.cuda.get_device_name() == torch.cuda.get_device_name(0)
    assert (told.major, told.minor) == torch.cuda.get_device_capability(torch.device("cuda", 0))
    for name in (
        "total_memory", "multi_processor_count", "warp_size", "max_threads_per_block", "L2_cache_size",
        "max_threads_per_multi_processor", "shared_memory_per_block", "regs_per_multiprocessor",
    ):  # fmt: skip
        assert getattr(told, name) > 0
    assert len(str(told.uuid)) == 36
    assert repr(told).startswith(f"_CudaDeviceProperties(name='{told.name}', major={told.major}, ")
    assert torch.cuda.is_bf16_supported() and torch.cuda.is_tf32_supported() == (told.major >= 8)
    for wrong in (-1, torch.cuda.device_count()):
        with pytest.raises(AssertionError, match="Invalid device id"):
            torch.cuda.get_device_properties(wrong)
    with pytest.raises(ValueError, match="Expected a cuda device, but got: cpu"):
        torch.cuda.get_device_properties("cpu")


def test_a_device_that_does_not_exist():
    wrong = torch.cuda.device_count()
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        torch.ones(2, device=f"cuda:{wrong}")
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        torch.ones(2).cuda(wrong)
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        torch.cuda.set_device(wrong)
    with pytest.raises(AssertionError, match="Invalid peer device id"):
        torch.cuda.can_device_access_peer(0, wrong)


def test_results_are_where_their_operands_are(device):
    x = torch.ones(2, 3, device=device)
    assert x.device == torch.device("cuda", 0) and x.is_cuda and x.get_device() == 0
    assert repr(x[0]) == "tensor([1., 1., 1.], device='cuda:0')"
    assert (x * 2 + x).sum().device == x.device and torch.zeros_like(x).device == x.device
    assert x.new_tensor([1]).device == x.device and x.to(torch.float16).device == x.device
    assert x.cpu().device == torch.device("cpu") and x.to("cuda") is x and x.cuda() is x


def test_large_tensors_are_printed_without_copying_them(device):
    x = torch.arange(4000.0, device=device).reshape(2, 2000)
    assert repr(x).replace(", device='cuda:0'", "") == repr(x.cpu())
    assert repr(x.half()[:0]) == "tensor([], device='cuda:0', size=(0, 2000), dtype=torch.float16)"


def test_the_default_device(device):
    torch.set_default_device(device)
    made = torch.ones(2), torch.tensor([1]), torch.arange(3), torch.randn(2), torch.nn.Linear(2, 2).weight
    assert torch.get_default_device() == torch.device("cuda", 0)
    assert {t.device.type for t in made} == {"cuda"}
    with torch.device("cpu"):
        assert torch.ones(1).device.type == "cpu"


@pytest.mark.parametrize(
    "function", [torch.add, torch.mul, torch.matmul, torch.maximum, lambda x, y: torch.cat([x, y])]
)
def test_operands_on_two_devices(function, device):
    x, y = torch.ones(2, 2, device=device), torch.ones(2, 2)
    for pair in ((x, y), (y, x)):
        with pytest.raises(RuntimeError, match="found at least two devices, cuda:0 and cpu!"):
            function(*pair)


def test_a_number_on_the_cpu_joins_any_device(device):
    x = torch.ones(3, device=device, dtype=torch.float16)
    for number in (torch.tensor(2.0), 2, 2.0, True, torch.tensor(2)):
        assert (x * number).device == (number * x).device == x.device
        assert (x * number).dtype == torch.float16
    assert (x + torch.tensor(2.5)).tolist() == [3.5] * 3
    with pytest.raises(RuntimeError, match="cuda:0 and cpu!"):
        x + torch.ones(1)


def test_a_module_on_another_device(device):
    layer = torch.nn.Linear(2, 2).to(device)
    with pytest.raises(RuntimeError, match="cuda:0 and cpu!"):
        layer(torch.ones(1, 2))
    assert layer.cpu()(torch.ones(1, 2)).device.type == "cpu"


@pytest.mark.parametrize("kind", ["Adam", "RMSprop", "Adagrad"])
def test_an_optimizer_that_began_on_another_device(kind, device):
    layer = torch.nn.Linear(2, 2)
    optimizer = getattr(torch.optim, kind)(layer.parameters())
    layer(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    layer.to(device)
    layer(torch.ones(1, 2, device=device)).sum().backward()
    with pytest.raises(RuntimeError, match="found at least two devices, cuda:0 and cpu!"):
        optimizer.step()
    optimizer.load_state_dict(optimizer.state_dict())  # brings the state to the parameters' device, as in PyTorch
    optimizer.step()
    assert all(v.is_cuda for v in optimizer.state[layer.weight].values() if v.ndim)


def test_gradients_go_back_to_where_they_belong(device):
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    (x.to(device) * 3).sum().backward()
    assert x.grad.device.type == "cpu" and x.grad.tolist() == [3, 3]
    with pytest.raises(RuntimeError, match="different device"):
        x.grad = torch.ones(2, device=device)


def test_copies_and_pickles(device):
    x = torch.arange(6.0, device=device).reshape(2, 3)[:, 1:].t()
    for made in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert made.device == x.device and made.stride() == x.stride() and torch.equal(made, x)
        made.zero_()
    assert x.tolist() == [[1, 4], [2, 5]]
    layer = copy.deepcopy(torch.nn.Linear(2, 2).to(device))
    assert layer.weight.is_cuda and layer.weight.requires_grad


def loader(value):
    """Returns a function of a map_location that loads what was saved of a value."""
    file = saved(value)
    return lambda location=None: (file.seek(0), torch.load(file, map_location=location))[1]


def test_checkpoints_go_both_ways(device):
    x = torch.arange(4.0, device=device)
    load = loader({"x": x, "y": x[1:]})
    assert load()["x"].device == x.device and load("cpu")["y"].tolist() == [1, 2, 3]
    assert load({"cuda:0": "cpu"})["x"].device.type == "cpu"
    assert load(lambda storage, location: storage)["x"].device.type == "cpu"
    assert loader(torch.ones(2))(device).device == x.device
    loaded = load()
    loaded["y"].zero_()
    assert loaded["x"].tolist() == [0, 0, 0, 0]
    layer = torch.nn.Linear(2, 2).to(device)
    layer.load_state_dict(torch.nn.Linear(2, 2).state_dict())
    assert layer.weight.is_cuda


def test_checkpoints_are_pytorchs(device):
    reference = pytest.importorskip("torch")
    file = io.BytesIO()
    torch.save(torch.arange(4.0, device=device), file)
    file.seek(0)
    assert reference.load(file, map_location="cpu").tolist() == [0, 1, 2, 3]
    file = io.BytesIO()
    reference.save(reference.arange(4.0), file)
    file.seek(0)
    assert torch.load(file, map_location=device).device == torch.device("cuda", 0)


def test_blocks_of_another_device():
    last = torch.cuda.device_count() - 1
    with torch.cuda.device(last):
        assert torch.cuda.current_device() == last
        with torch.cuda.device(-1), torch.cuda.device(None), torch.cuda.device_of(torch.ones(1)):
            assert torch.cuda.current_device() == last
        with torch.cuda.device_of(torch.ones(1, device="cuda:0")):
            assert torch.cuda.current_device() == 0
        assert torch.ones(1, device="cuda").device.index == last
    assert torch.cuda.current_device() == 0
    with torch.accelerator.device_index(last):
        assert torch.cuda.current_device() == last
    assert torch.cuda.current_device() == 0


def test_check_error():
    torch.cuda.check_error(0)
    with pytest.raises(torch.cuda.CudaError, match=r"invalid device ordinal \(101\)"):
        torch.cuda.check_error(101)


# --- two of them -----------------------------------------------------------------------------------------------------

NUMBERS = {
    "promotion": lambda x: x.to(torch.int64) * 2.5 + x,
    "half": lambda x: x.half().sum(),
    "dtype": lambda x: x.sum(dtype=torch.float64),
    "reduction": lambda x: x.std(),
    "softmax": lambda x: x.softmax(0),
    "mask": lambda x: x[x > 0],
    "index": lambda x: x[:, [0, 1]],
    "product": lambda x: x @ x.t(),
    "where": lambda x: torch.where(x > 0, x, 0),
    "sort": lambda x: x.sort()[0],
    "cat": lambda x: torch.cat([x, x]),
    "norm": lambda x: torch.linalg.vector_norm(x, dtype=torch.float64),
    "inverse": lambda x: torch.linalg.inv(x @ x.t() + torch.eye(3, device=x.device)),
    "cumsum": lambda x: x.cumsum(0),
    "einsum": lambda x: torch.einsum("ij,kj->ik", x, x),
    "norms": lambda x: torch.nn.functional.layer_norm(x, (4,)),
    "fill": lambda x: x.masked_fill(x > 0, 0.5),
    "nonzero": lambda x: x.nonzero(),
}


@several
@pytest.mark.parametrize("name", NUMBERS)
def test_work_is_done_where_the_operands_are(name):
    values = torch.tensor([[1.0, -2.0, 3.0, 0.5], [0.25, 1.5, -1.0, 2.0], [3.0, 0.0, 1.0, 1.0]])
    expected, there = NUMBERS[name](values), values.to("cuda:1").requires_grad_()
    result = NUMBERS[name](there)
    assert result.device == torch.device("cuda", 1) and torch.cuda.current_device() == 0
    torch.testing.assert_close(result.detach().cpu(), expected)
    if result.requires_grad:
        result.sum().backward()
        assert there.grad.device == there.device


@several
def test_ops_on_the_second_gpu(monkeypatch):
    """Records of PyTorch's test database, of which only the device is looked at here."""
    reference = pytest.importorskip("torch", reason="torch has the records")
    pytest.importorskip("expecttest", reason="PyTorch's test database imports expecttest")
    from tests.conformance import opdb, opdb_bridge, opdb_families

    monkeypatch.setattr(opdb_bridge, "HOME", "cuda:1")
    monkeypatch.setattr(opdb, "_shares", lambda a, b: a._storage is b._storage)  # NumPy's question needs one GPU
    here = {e.name for e in opdb_families.entries() if not e.excluded and not e.missing}
    records = [
        r for r in opdb.records() if opdb.record_name(r) in here and not r.name.startswith(("empty", "new_empty"))
    ]
    for record in records[::24]:
        dtypes = record.supported_dtypes("cpu")
        if reference.float32 not in dtypes:
            continue
        problems = opdb.check_forward(record, reference.float32, record.name in opdb.VIEWS, 1)
        if opdb.differentiable(record):
            problems += opdb.check_gradient(record, reference.float32, 1, 1)
        elsewhere = [p for p in problems if "device" in p]
        assert not elsewhere, f"{record.name}: {elsewhere[0]}"


@several
def test_two_gpus_are_two_devices():
    x, y = torch.ones(2, device="cuda:0"), torch.ones(2, device="cuda:1")
    for function in (torch.add, torch.dot, lambda a, b: torch.stack([a, b]), lambda a, b: a.half() + b):
        with pytest.raises(RuntimeError, match="found at least two devices, cuda:0 and cuda:1!"):
            function(x, y)
    with pytest.raises(RuntimeError, match="cuda:0 and cuda:1!"):
        x.add_(y)
    layer = torch.nn.Linear(2, 2).to("cuda:1")
    with pytest.raises(RuntimeError, match="cuda:0 and cuda:1!"):
        layer(x[None])
    assert x.tolist() == [1, 1]


@several
def test_copies_between_gpus():
    x = torch.arange(6.0, device="cuda:0").reshape(2, 3).t()
    y = x.to("cuda:1")
    assert y.device.index == 1 and y.stride() == x.stride() and torch.equal(y.cpu(), x.cpu())
    assert y.to("cuda").device.index == 0 and y.cuda().device.index == 0 and y.cuda(1) is y
    x.zero_()
    assert x.copy_(y).device.index == 0 and x.tolist() == y.tolist()
    assert y[:, ::2].to("cpu", non_blocking=True).tolist() == y[:, ::2].tolist()  # of the GPU that is not the current
    assert torch.empty(3, 2).pin_memory().copy_(y.contiguous(), non_blocking=True).tolist() == y.tolist()
    leaf = torch.ones(2, device="cuda:0", requires_grad=True)
    (leaf.to("cuda:1") * 2).sum().backward()
    assert leaf.grad.device.index == 0 and leaf.grad.tolist() == [2, 2]


@several
def test_the_number_of_a_device_is_kept():
    x = torch.ones(2, device="cuda:1")
    assert copy.deepcopy(x).device == pickle.loads(pickle.dumps(x)).device == loader(x)().device == x.device
    assert loader(x)({"cuda:1": "cuda:0"}).device.index == 0
    assert repr(x) == "tensor([1., 1.], device='cuda:1')"
    with torch.cuda.device(1):
        assert torch.zeros(1, device="cuda").device == torch.randn(2, device="cuda").device == x.device
        assert torch.ones(1, device="cuda:0").device.index == 0


def steps(device, count=3):
    """Losses of a few training steps, and where the parameters then are."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    data = torch.linspace(-1, 1, 24).reshape(6, 4).to(device)
    model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for _ in range(count):
        optimizer.zero_grad()
        loss = (model(data) ** 2).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.detach())
    return [loss.item() for loss in losses], {str(p.device) for p in model.parameters()}


@several
def test_training_on_the_second_gpu():
    losses, places = steps("cuda:1")
    assert places == {"cuda:1"} and torch.cuda.current_device() == 0
    assert losses == pytest.approx(steps("cpu")[0], rel=1e-4)


@several
def test_one_tensor_to_many_and_back():
    comm = torch.cuda.comm
    x = torch.arange(5.0)
    copies = comm.broadcast(x, [0, "cuda:1"])
    assert [c.device.index for c in copies] == [0, 1] and all(c.tolist() == x.tolist() for c in copies)
    parts = comm.scatter(x, [0, 1], chunk_sizes=[2, 3])
    assert [p.tolist() for p in parts] == [[0, 1], [2, 3, 4]] and [p.device.index for p in parts] == [0, 1]
    assert comm.gather(parts).tolist() == x.tolist() and comm.gather(parts, destination="cpu").device.type == "cpu"
    total = comm.reduce_add(copies, destination=1)
    assert total.device.index == 1 and total.tolist() == [0, 2, 4, 6, 8]
    assert comm.broadcast_coalesced([x, x[:1]], [1, 0])[0][1].device.index == 1
    with pytest.raises(ValueError, match="got 2, but expected 5"):
        comm.reduce_add([copies[0], parts[0]])
    with pytest.raises(RuntimeError, match="Exactly one of"):
        comm.broadcast(x)
