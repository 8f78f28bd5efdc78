"""Memory of GPUs: what is counted, what happens when there is none left, and what must live until it was used."""

import gc
import pickle

import pytest

import tensorgrad as torch

UNIT = 512  # what the pool gives out at least
MIB = 2**20


@pytest.fixture(autouse=True)
def clean(device):
    torch.cuda.init()
    gc.disable()  # what other tests left behind may not go while this one counts
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    yield
    gc.enable()
    torch.cuda.set_per_process_memory_fraction(1.0)
    torch.cuda.empty_cache()


def test_what_tensors_occupy(device):
    before = torch.cuda.memory_allocated()
    x = torch.empty(MIB, dtype=torch.uint8, device=device)
    y = torch.empty(1, device=device)
    assert torch.cuda.memory_allocated() - before == MIB + UNIT
    view, same = x[10:], x.detach()
    del x
    assert torch.cuda.memory_allocated() - before == MIB + UNIT
    del view, same, y
    assert torch.cuda.memory_allocated() == before == torch.accelerator.memory_allocated()


def test_the_peak_is_the_true_one(device):
    start = torch.cuda.memory_allocated()
    keep = torch.empty(MIB, dtype=torch.uint8, device=device)
    for _ in range(5):  # what is given back at once counts once
        temporary = torch.empty(3 * MIB, dtype=torch.uint8, device=device)
        del temporary
    assert torch.cuda.max_memory_allocated() - start == 4 * MIB
    assert torch.cuda.memory_allocated() - start == MIB
    more = [torch.empty(MIB, dtype=torch.uint8, device=device) for _ in range(4)]
    assert torch.cuda.max_memory_allocated() - start == 5 * MIB
    del more
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() == torch.cuda.memory_allocated() == start + MIB
    del keep
    assert torch.cuda.max_memory_allocated() == torch.accelerator.max_memory_allocated() == start + MIB


def test_what_is_reserved(device):
    x = torch.empty(2 * MIB, dtype=torch.uint8, device=device)
    held = torch.cuda.memory_reserved()
    assert held >= torch.cuda.memory_allocated() >= 2 * MIB
    del x
    assert torch.cuda.memory_reserved() == held
    free, total = torch.cuda.mem_get_info()
    assert 0 < free < total == torch.cuda.get_device_properties().total_memory
    assert torch.cuda.device_memory_used() == total - free
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() <= held - 2 * MIB
    assert torch.cuda.max_memory_reserved() >= held
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_reserved() == torch.cuda.memory_reserved() == torch.accelerator.memory_reserved()


def test_statistics(device):
    torch.cuda.reset_accumulated_memory_stats()
    x = torch.empty(MIB, dtype=torch.uint8, device=device)
    stats = torch.cuda.memory_stats()
    assert stats["allocated_bytes.all.allocated"] == MIB and stats["allocation.all.allocated"] == 1
    assert stats["allocated_bytes.all.current"] == torch.cuda.memory_allocated()
    assert stats["allocated_bytes.all.peak"] == torch.cuda.max_memory_allocated()
    assert stats["reserved_bytes.all.current"] == torch.cuda.memory_reserved()
    nested = torch.cuda.memory_stats_as_nested_dict()
    assert nested["allocated_bytes"]["all"]["current"] == stats["allocated_bytes.all.current"]
    assert list(stats) == sorted(stats)
    text = torch.cuda.memory_summary()
    assert f"{torch.cuda.memory_allocated():,}" in text and "GPU 0" in text
    del x
    for old, new in (("memory_cached", "memory_reserved"), ("max_memory_cached", "max_memory_reserved")):
        with pytest.warns(FutureWarning, match=new):
            assert getattr(torch.cuda, old)() == getattr(torch.cuda, new)()


def test_out_of_memory_says_how_much(device):
    x = torch.ones(4, device=device)
    total = torch.cuda.mem_get_info()[1]
    failures = torch.cuda.memory_stats()["num_ooms"]
    message = (
        r"^CUDA out of memory\. Tried to allocate \d+\.\d\d GiB\. GPU 0 has a total capacity of \d+\.\d\d GiB of which "
        r"[\d.]+ \w+ is free\. Of the allocated memory [\d.]+ \w+ is allocated by tensors, and [\d.]+ \w+ is reserved "
        r"but unallocated\.$"
    )
    for ask in (
        lambda: torch.empty(total + MIB, dtype=torch.uint8, device=device),
        lambda: torch.zeros(total // 4 + MIB, device=device),
    ):
        with pytest.raises(torch.cuda.OutOfMemoryError, match=message) as caught:
            ask()
        assert type(caught.value) is torch.OutOfMemoryError and isinstance(caught.value, RuntimeError)
        del caught
    assert (x + 1).tolist() == [2] * 4  # and the program goes on
    assert torch.cuda.memory_stats()["num_ooms"] == failures + 2


def allow(size):
    """Lets the process hold so many bytes more than it does."""
    part = torch.cuda.memory_reserved() + size
    torch.cuda.set_per_process_memory_fraction(part / torch.cuda.mem_get_info()[1])


def test_any_op_runs_out_of_memory(device):
    x = torch.ones(1, 4, device=device)
    index = torch.zeros(1, device=device, dtype=torch.int64).expand(4 * MIB)
    allow(8 * MIB)
    wide = x.expand(MIB, 4)
    for ask in (
        lambda: wide + 1, lambda: wide.clone(), lambda: wide.contiguous(), lambda: wide.softmax(1),
        lambda: x[0, index], lambda: torch.cat([wide, wide]), lambda: wide @ x.t().expand(4, 4),
        lambda: wide.double(), lambda: wide.cumsum(0), lambda: torch.zeros_like(wide),
        lambda: torch.randn(MIB, 4, device=device), lambda: torch.ones(MIB, 4).to(device),
    ):  # fmt: skip
        with pytest.raises(torch.OutOfMemoryError, match="MiB allowed"):
            ask()
    assert (x + 1).tolist() == [[2] * 4]


def test_what_is_kept_is_given_back_before_memory_runs_out(device):
    allow(8 * MIB)
    blocks = [torch.empty(2 * MIB, dtype=torch.uint8, device=device) for _ in range(3)]
    del blocks
    x = torch.empty(7 * MIB, dtype=torch.uint8, device=device)
    with pytest.raises(torch.OutOfMemoryError, match=r"MiB allowed; Of the allocated"):
        torch.empty(2 * MIB, dtype=torch.uint8, device=device)
    del x
    assert torch.empty(7 * MIB, dtype=torch.uint8, device=device).is_cuda


def test_fractions(device):
    torch.cuda.set_per_process_memory_fraction(0.5)
    assert torch.cuda.get_per_process_memory_fraction() == pytest.approx(0.5, abs=1e-6)
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(int(torch.cuda.mem_get_info()[1] * 0.6), dtype=torch.uint8, device=device)
    torch.cuda.set_per_process_memory_fraction(1.0)
    assert torch.cuda.get_per_process_memory_fraction() == 1.0
    with pytest.raises(TypeError, match="must be `float`"):
        torch.cuda.set_per_process_memory_fraction(1)
    with pytest.raises(ValueError, match="Allowed range: 0~1"):
        torch.cuda.set_per_process_memory_fraction(1.5)


def test_a_training_step_that_runs_out_can_be_repeated(device):
    model = torch.nn.Linear(8, 8).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    huge = torch.ones(1, 8, device=device).expand(MIB, 8)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    before = step(huge[:4])
    allow(8 * MIB)
    with pytest.raises(torch.OutOfMemoryError):
        step(huge)
    assert step(huge[:4]) < before


def test_memory_for_others(device):
    before = torch.cuda.memory_allocated()
    pointer = torch.cuda.caching_allocator_alloc(MIB)
    assert pointer and torch.cuda.memory_allocated() - before == MIB
    torch.cuda.caching_allocator_delete(pointer)
    assert torch.cuda.memory_allocated() == before
    with pytest.raises(TypeError, match="Invalid type for stream argument"):
        torch.cuda.caching_allocator_alloc(MIB, stream="a")
    assert torch.cuda.get_allocator_backend() == "cupy" and torch.cuda.host_memory_stats()["allocations.free"] >= 0


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_each_gpu_has_its_own_count(device):
    first = torch.cuda.memory_allocated(0)
    x = torch.empty(MIB, dtype=torch.uint8, device="cuda:1")
    assert torch.cuda.memory_allocated("cuda:1") >= MIB and torch.cuda.memory_allocated(0) == first
    assert torch.cuda.max_memory_allocated(torch.device("cuda", 1)) >= MIB
    assert "GPU 1" in torch.cuda.memory_summary(1)
    torch.cuda.set_per_process_memory_fraction(0.25, 1)
    with pytest.raises(torch.OutOfMemoryError, match="GPU 1 has a total capacity"):
        torch.empty(torch.cuda.mem_get_info(1)[1] // 2, dtype=torch.uint8, device="cuda:1")
    torch.cuda.set_per_process_memory_fraction(1.0, 1)
    del x


# --- pinned memory ---------------------------------------------------------------------------------------------------


def test_pinned_memory(device):
    x = torch.arange(6.0).reshape(2, 3)
    locked = x.t().pin_memory()
    assert locked.is_pinned() and not x.is_pinned() and locked[1:].is_pinned()
    assert locked.pin_memory() is locked and locked.tolist() == x.t().tolist() and locked.device.type == "cpu"
    assert not torch.ones(1, device=device).is_pinned()
    with pytest.raises(RuntimeError, match="only dense CPU tensors can be pinned"):
        torch.ones(1, device=device).pin_memory()
    for made in (
        torch.zeros(2, pin_memory=True), torch.ones(2, pin_memory=True), torch.empty(2, pin_memory=True),
        torch.full((2,), 3.0, pin_memory=True), torch.tensor([1.0, 2.0], pin_memory=True),
        torch.arange(3, pin_memory=True), torch.linspace(0, 1, 3, pin_memory=True), torch.eye(2, pin_memory=True),
        torch.rand(2, pin_memory=True), torch.randperm(3, pin_memory=True), torch.scalar_tensor(2, pin_memory=True),
        torch.empty_strided((2,), (1,), pin_memory=True), torch.normal(0.0, 1.0, (2,), pin_memory=True),
        torch.hann_window(3, pin_memory=True), torch.tril_indices(2, 2, pin_memory=True),
    ):  # fmt: skip
        assert made.is_pinned()
    sparse = torch.sparse_csr_tensor([0, 1, 2], [1, 0], [1.0, 2.0], pin_memory=True)
    assert sparse.values().is_pinned() and sparse.to_dense().tolist() == [[0, 1], [2, 0]]
    with pytest.raises(RuntimeError, match="Only dense CPU tensors can be pinned"):
        torch.zeros(2, device=device, pin_memory=True)
    storage = locked.untyped_storage()
    assert storage.is_pinned() and torch.empty(0).pin_memory().numel() == 0


def test_copies_that_do_not_block(device):
    x = torch.arange(6.0).reshape(2, 3)
    for source in (x, x.pin_memory(), x.t().pin_memory(), x[:, ::2], x.to(torch.bfloat16).pin_memory(), x[:0]):
        there = source.to(device, non_blocking=True)
        back = there.to("cpu", non_blocking=True)
        torch.cuda.synchronize()
        assert there.tolist() == back.tolist() == source.tolist()
        assert back.is_pinned() == bool(source.numel())
    there = x.cuda(non_blocking=True)
    target = torch.empty(2, 3).pin_memory()
    version = target._version
    assert target.copy_(there, non_blocking=True) is target and target._version == version + 1
    torch.cuda.synchronize()
    assert target.tolist() == x.tolist()
    plain = torch.empty(2, 3)
    assert plain.copy_(there, non_blocking=True).tolist() == x.tolist()
    assert torch.empty(2, 3, dtype=torch.int64).pin_memory().copy_(there, non_blocking=True).tolist() == x.tolist()
    assert there.zero_().copy_(x.pin_memory(), non_blocking=True).tolist() == x.tolist()


@pytest.mark.parametrize("pin", [False, True])
def test_what_is_saved_may_wait_on_the_cpu(pin, device):
    x = torch.tensor([1.0, 2.0], device=device, requires_grad=True)
    with torch.autograd.graph.save_on_cpu(pin_memory=pin):
        y = (x * x).exp().sum()
    y.backward()
    expected = x.detach().clone().requires_grad_()
    (expected * expected).exp().sum().backward()
    assert torch.equal(x.grad, expected.grad)


def test_batches_in_pinned_memory(device):
    data = torch.utils.data.TensorDataset(torch.arange(6.0), torch.arange(6))
    loader = torch.utils.data.DataLoader(data, batch_size=2, pin_memory=True)
    for x, y in loader:
        assert x.is_pinned() and y.is_pinned()
        assert x.to(device, non_blocking=True).tolist() == x.tolist()


# --- what makes the host wait ----------------------------------------------------------------------------------------


@pytest.fixture
def mode():
    yield torch.cuda.set_sync_debug_mode
    torch.cuda.set_sync_debug_mode("default")


WAITS = {
    "item": lambda x: x[0].item(), "cpu": lambda x: x.cpu(), "tolist": lambda x: x.tolist(), "print": repr,
    "bool": lambda x: bool(x[0]), "to ordinary memory": lambda x: torch.empty(2).copy_(x, non_blocking=True),
    "format": lambda x: f"{x[0]}", "index": lambda x: [0, 1][x[0].long()],
}  # fmt: skip


@pytest.mark.parametrize("name", WAITS)
def test_waiting_is_noticed(name, mode, device):
    x = torch.zeros(2, device=device)
    mode("error")
    assert torch.cuda.get_sync_debug_mode() == 2
    with pytest.raises(RuntimeError, match="called a synchronizing CUDA operation"):
        WAITS[name](x)
    mode(1)
    with pytest.warns(UserWarning, match="called a synchronizing CUDA operation"):
        WAITS[name](x)
    mode("default")
    WAITS[name](x)


def test_modes(mode):
    for wrong in ("never", 3):
        with pytest.raises(RuntimeError, match="invalid value of debug_mode, expected one of"):
            mode(wrong)
    mode("error")
    torch.cuda.synchronize()  # what is asked for does not count
    mode(0)
    assert torch.cuda.get_sync_debug_mode() == 0


def test_a_training_step_waits_for_nothing(mode, device):
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.LayerNorm(8), torch.nn.GELU(), torch.nn.Linear(8, 1))
    model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    x, y = torch.randn(6, 4, device=device), torch.randn(6, 1, device=device)
    losses = []
    for i in range(4):
        if i == 1:  # the first step makes what the others use: kernels, numbers, the optimizer's state
            mode("error")
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.detach())
    mode("default")
    assert losses[-1].item() < losses[0].item()


def test_a_pool_of_its_own(device):
    before = torch.cuda.memory_allocated()
    pool, other = torch.cuda.MemPool(), torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        x = torch.empty(MIB, dtype=torch.uint8, device=device)
        with torch.cuda.use_mem_pool(other):
            y = torch.empty(MIB, dtype=torch.uint8, device=device)
    z = torch.empty(MIB, dtype=torch.uint8, device=device)
    assert torch.cuda.memory_allocated() - before == 3 * MIB
    assert pool._pool.memory.used_bytes() == other._pool.memory.used_bytes() == MIB
    assert pool.id != other.id and pool.use_count() == 1 and pool.allocator is None
    del x, y, z
    assert torch.cuda.memory_allocated() == before
    with pytest.raises(NotImplementedError, match="allocator"):
        torch.cuda.MemPool(object())


def test_the_memory_of_a_pool_goes_with_it(device):
    held = torch.cuda.memory_reserved()
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        x = torch.zeros(MIB, dtype=torch.uint8, device=device)
    del pool
    assert x.sum().item() == 0
    del x
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() <= held


def test_the_history_of_memory(device, tmp_path):
    memory = torch.cuda.memory
    memory._record_memory_history()
    x = torch.empty(MIB, dtype=torch.uint8, device=device)
    y = torch.empty(100, dtype=torch.uint8, device=device)
    address = x.data_ptr()
    del x
    made = memory._snapshot()
    actions = [(event["action"], event["addr"] == address) for event in made["device_traces"][0]]
    assert actions == [("alloc", True), ("alloc", False), ("free_requested", True), ("free_completed", True)]
    first = made["device_traces"][0][0]
    mine = next(frame for frame in first["frames"] if frame["filename"] == __file__)  # the emulator's are before
    assert first["size"] == MIB and mine["name"] == "test_the_history_of_memory"
    (segment,) = made["segments"]
    assert segment["address"] == y.data_ptr() and segment["blocks"][0]["requested_size"] == 100
    memory._dump_snapshot(tmp_path / "snapshot.pickle")
    assert pickle.loads((tmp_path / "snapshot.pickle").read_bytes())["segments"] == made["segments"]
    memory._record_memory_history(enabled=None)
    del y
    assert len(memory._snapshot()["device_traces"][0]) == 4 and not memory._snapshot()["segments"]
    memory._record_memory_history("state", context=None, clear_history=True)
    z = torch.empty(10, device=device)
    made = memory._snapshot()
    assert not made["device_traces"][0] and made["segments"][0]["frames"] == [] and z.numel() == 10
    memory._record_memory_history(max_entries=2, clear_history=True, skip_actions=["free_requested"])
    for _ in range(3):
        torch.empty(10, device=device)
    assert [event["action"] for event in memory._snapshot()["device_traces"][0]] == ["alloc", "free_completed"]
    memory._record_memory_history(enabled=None)
    for wrong in ({"enabled": "x"}, {"context": "x"}, {"skip_actions": ["x"]}):
        with pytest.raises(RuntimeError, match="expected"):
            memory._record_memory_history(**wrong)
