"""Queues of work, marks in them, and the memory that queued work still needs."""

import gc

import pytest

import tensorgrad as torch

several = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")


@pytest.fixture
def busy():
    """A `with` block in which a stream has unfinished work; the emulator can be told so."""
    import cupy

    if not getattr(cupy, "EMULATED", False):
        pytest.skip("only the emulator can be told that a stream is busy")
    from tests.emulator import streams

    return lambda stream: streams.busy(stream.stream)


@pytest.fixture(autouse=True)
def default_stream():
    gc.disable()  # what other tests left behind may not go while this one counts
    yield
    gc.enable()
    torch.cuda.set_stream(torch.cuda.default_stream(0))


def test_streams_are_queues_of_a_gpu(device):
    side, other = torch.cuda.Stream(), torch.cuda.Stream("cuda:0", priority=-1)
    assert side.device == torch.device("cuda", 0) and side.cuda_stream and side != other and side == side
    assert other.priority == -1 and side.priority == 0 and torch.cuda.Stream(priority=5).priority == 0
    assert len({side, side, other}) == 2 and side.query()
    assert repr(side) == f"<torch.cuda.Stream device=cuda:0 cuda_stream={side.cuda_stream:#x}>"
    assert torch.cuda.default_stream().cuda_stream == 0
    assert torch.cuda.current_stream() == torch.cuda.default_stream() == torch.accelerator.current_stream()
    assert side.__cuda_stream__() == (0, side.cuda_stream) and side._as_parameter_.value == side.cuda_stream
    with pytest.raises(ValueError, match="Expected a cuda device"):
        torch.cuda.Stream("cpu")


def test_work_goes_to_the_current_stream(device):
    import cupy

    side = torch.cuda.Stream()
    with torch.cuda.stream(side) as nothing:
        assert nothing is None and torch.cuda.current_stream() == side
        assert cupy.cuda.get_current_stream().ptr == side.cuda_stream  # CuPy's kernels go there, too
        with torch.cuda.stream(None), torch.cuda.stream(torch.cuda.default_stream()):
            assert torch.cuda.current_stream() == torch.cuda.default_stream()
        assert torch.cuda.current_stream() == side
        x = torch.ones(3, device=device) * 2
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    side.synchronize()
    assert x.tolist() == [2] * 3
    with side as entered:
        assert entered is side and torch.cuda.current_stream() == side
    torch.cuda.set_stream(side)
    torch.cuda.set_stream(None)
    assert torch.cuda.current_stream() == side
    torch.accelerator.set_stream(torch.cuda.default_stream())
    assert torch.cuda.current_stream() == torch.cuda.default_stream()


def test_a_block_that_fails_puts_the_stream_back(device):
    with pytest.raises(KeyError), torch.cuda.stream(torch.cuda.Stream()):
        raise KeyError
    assert torch.cuda.current_stream() == torch.cuda.default_stream()


def test_streams_of_others(device):
    side = torch.cuda.Stream()
    for made in (torch.cuda.ExternalStream(side.cuda_stream), torch.cuda.get_stream_from_external(side.cuda_stream, 0)):
        assert made == side and isinstance(made, torch.cuda.Stream)
        with torch.cuda.stream(made):
            assert torch.cuda.current_stream() == side
    assert torch.cuda.ExternalStream(0) == torch.cuda.default_stream()
    assert torch.cuda.Stream(stream_id=side.stream_id, device_index=0) == side


def test_streams_wait_for_each_other(device):
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    event = first.record_event()
    assert isinstance(event, torch.cuda.Event) and event.cuda_event
    second.wait_event(event)
    second.wait_stream(first)
    event.wait(second), event.wait()
    if hasattr(second.stream, "waited"):  # the emulator's
        assert second.stream.waited[0] is event.event and len(second.stream.waited) == 3
    given = torch.cuda.Event()
    assert first.record_event(given) is given
    torch.cuda.Event().wait(first)  # one that was never recorded: there is nothing to wait for


def test_events_measure_time(device):
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    assert repr(start) == "<torch.cuda.Event uninitialized>" and start.query() and start.cuda_event == 0
    start.synchronize()
    with pytest.raises(ValueError, match="Both events must be recorded before calculating elapsed time"):
        start.elapsed_time(end)
    start.record()
    torch.ones(100, device=device).sum()
    end.record(torch.cuda.current_stream())
    end.synchronize()
    assert start.query() and 0 <= start.elapsed_time(end) < 60_000
    assert repr(start) == f"<torch.cuda.Event {start.cuda_event:#x}>" and start.device == torch.device("cuda", 0)
    plain = torch.cuda.Event()
    plain.record()
    with pytest.raises(ValueError, match="Both events must be created with argument 'enable_timing=True'"):
        start.elapsed_time(plain)
    for share in (plain.ipc_handle, lambda: torch.cuda.Event.from_ipc_handle(0, b"")):
        with pytest.raises(NotImplementedError, match="not shared between processes"):
            share()


def test_unfinished_work(busy, device):
    side, end = torch.cuda.Stream(), torch.cuda.Event(enable_timing=True)
    start = side.record_event(torch.cuda.Event(enable_timing=True))
    with busy(side):
        side.record_event(end)
        assert not side.query() and not end.query()
        with pytest.raises(RuntimeError, match="Both events must be completed before calculating elapsed time"):
            start.elapsed_time(end)
    assert side.query() and end.query()


@several
def test_each_gpu_has_its_own_streams():
    side = torch.cuda.Stream(1)
    assert side.device.index == 1 and torch.cuda.current_device() == 0
    with torch.cuda.stream(side):
        assert torch.cuda.current_device() == 1 and torch.cuda.current_stream() == side
        assert torch.cuda.current_stream(0) == torch.cuda.default_stream(0)
        x = torch.ones(2, device="cuda")
    assert torch.cuda.current_device() == 0 and x.device.index == 1
    assert torch.cuda.current_stream(1) == torch.cuda.default_stream(1) != torch.cuda.default_stream(0)
    event = torch.cuda.Event()
    event.record(side)
    torch.cuda.current_stream().wait_event(event)  # those of other GPUs may be waited for, not recorded
    with pytest.raises(RuntimeError, match="Event device 1 does not match recording stream's device 0"):
        event.record()
    torch.cuda.synchronize(1)


@several
def test_copies_between_gpus_wait_for_both():
    import cupy

    x = torch.ones(2, device="cuda:0")
    target, source = torch.cuda.Stream(1), torch.cuda.Stream(0)
    with torch.cuda.stream(source), torch.cuda.stream(target):
        assert x.to("cuda:1").tolist() == [1, 1]
    if getattr(cupy, "EMULATED", False):
        assert len(target.stream.waited) == len(source.stream.waited) == 1


def test_memory_that_another_stream_uses(busy, device):
    before, side = torch.cuda.memory_allocated(), torch.cuda.Stream()
    x = torch.ones(1000, device=device)
    x.record_stream(side)
    with busy(side):
        y = x * 2
        del x
        assert torch.cuda.memory_allocated() - before == 2 * 4096  # another stream is not done with x
        del y
        assert torch.cuda.memory_allocated() - before == 4096
    assert torch.cuda.memory_allocated() == before
    with pytest.raises(NotImplementedError, match="record_stream"):
        torch.ones(1).record_stream(side)


def test_pinned_memory_lives_until_it_was_read(busy, device):
    from tests.emulator import runtime

    known, side = len(runtime._pinned), torch.cuda.Stream()
    with torch.cuda.stream(side), busy(side):
        x = torch.ones(1000, pin_memory=True).to(device, non_blocking=True)
        y = x.to("cpu", non_blocking=True)
        del y
        assert len(runtime._pinned) == known + 2
    torch.cuda.empty_cache()
    assert len(runtime._pinned) == known and x.sum().item() == 1000


def test_pinned_memory_may_be_written_after_a_copy_that_blocks(device):
    pinned = torch.ones(1000, pin_memory=True)
    there = pinned.to(device)
    pinned.zero_()
    assert there.sum().item() == 1000


def test_names_for_profilers(device):
    nvtx = torch.cuda.nvtx
    with nvtx.range("step {}", 3):
        assert nvtx.range_push("inner") == 1
        nvtx.mark("here")
        assert nvtx.range_pop() == 1
    nvtx.range_end(nvtx.range_start("loading"))
    with torch.cuda.profiler.profile():
        torch.ones(1, device=device)
    runtime = torch.cuda.cudart()
    torch.cuda.check_error(runtime.cudaProfilerStart())
    torch.cuda.check_error(runtime.cudaProfilerStop())
    assert runtime.cudaMemGetInfo(0)[1] == torch.cuda.mem_get_info(0)[1]
    import cupy

    if getattr(cupy, "EMULATED", False):
        recorded = ["start", "stop"] * 2
        assert cupy.cuda.nvtx.NAMED[-10:] == ["step 3", "inner", "here", "pop", "pop", "loading", *recorded]


def test_a_forked_process_says_so(device):
    import os

    torch.ones(1, device=device)
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            torch.ones(1, device=device)
            told = "no error"
        except RuntimeError as error:
            told = str(error)
        os.write(write, told.encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 1000).decode().startswith("Cannot re-initialize CUDA in forked subprocess.")
