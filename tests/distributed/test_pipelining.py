"""A pipeline of stages computes what one process computes with the whole model."""

import json
import re
import warnings

import pytest

import tensorgrad as torch
import tensorgrad.distributed as dist
from tensorgrad.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    SplitPoint,
    pipeline,
)
from tensorgrad.distributed.pipelining.metadata import Layout, PipeliningMetadataError, decode, encode
from tensorgrad.distributed.pipelining.microbatch import (
    TensorChunkSpec,
    merge_chunks,
    split_args_kwargs_into_chunks,
    sum_reducer,
)
from tensorgrad.distributed.pipelining.orders import (
    FORWARD,
    FULL_BACKWARD,
    REDUCE_GRAD,
    Action,
    gpipe,
    interleaved_1f1b,
    looped_bfs,
    one_forward_one_backward,
    with_reduce_grad,
)
from tensorgrad.distributed.pipelining.timeline import check_order, format_order, timeline
from tests.distributed import same_pipeline
from tests.distributed.launch import HERE, has_ended, needs_mpi, run

nn = torch.nn


@pytest.fixture
def alone():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def reference():
    """PyTorch's module of schedules."""
    real = pytest.importorskip("torch")
    if not real.distributed.is_available():
        pytest.skip("this PyTorch has no torch.distributed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("torch.distributed.pipelining.schedules")


# --- orders ---


def all_orders():
    for ranks in (1, 2, 3, 4, 8):
        for n in (1, 2, 3, 4, 6, 8, 10, 16):
            yield "gpipe", ranks, 1, n, {r: gpipe(r, n) for r in range(ranks)}
            yield "1f1b", ranks, 1, n, {r: one_forward_one_backward(r, ranks, n) for r in range(ranks)}
            for local in (1, 2, 3):
                yield "bfs", ranks, local, n, {r: looped_bfs(r, ranks, local, n) for r in range(ranks)}
                if n % max(1, n // ranks) == 0:
                    yield (
                        "interleaved",
                        ranks,
                        local,
                        n,
                        {r: interleaved_1f1b(r, ranks, local, n) for r in range(ranks)},
                    )


def test_every_order_can_be_run():
    """Each microbatch is there once, forward before backward, on the right rank, and no rank waits for ever."""
    for _, ranks, local, n, order in all_orders():
        place = check_order({r: with_reduce_grad(actions) for r, actions in order.items()}, ranks * local, n)
        assert place == {stage: stage % ranks for stage in range(ranks * local)}


class Recorder:
    """A stage for PyTorch's schedules that only writes down what it is to do."""

    is_last = False

    def __init__(self, stage_index):
        self.stage_index, self.actions = stage_index, []

    def forward_one_chunk(self, i, *args, **options):
        self.actions.append(Action(self.stage_index, FORWARD, i))

    def backward_one_chunk(self, i, **options):
        self.actions.append(Action(self.stage_index, FULL_BACKWARD, i))

    def perform_reduce_grad(self, factor):
        self.actions.append(Action(self.stage_index, REDUCE_GRAD))

    def no_messages(self, i):
        return []

    get_fwd_recv_ops = get_fwd_send_ops = get_bwd_recv_ops = get_bwd_send_ops = no_messages


def test_orders_are_those_of_pytorch(reference):
    kinds = {
        "gpipe": reference.ScheduleGPipe, "1f1b": reference.Schedule1F1B,
        "interleaved": reference.ScheduleInterleaved1F1B, "bfs": reference.ScheduleLoopedBFS,
    }  # fmt: skip
    for kind, ranks, local, n, order in all_orders():
        if kind == "1f1b" and n < ranks:
            continue  # PyTorch refuses
        for rank, actions in order.items():
            theirs = object.__new__(kinds[kind])  # the orders need no process group
            theirs._num_stages, theirs._n_microbatches, theirs.pp_group_size = ranks * local, n, ranks
            if kind in ("gpipe", "1f1b"):  # what is run; `pipeline_order` of 1F1B is wrong for the last stage
                theirs._stage = Recorder(rank)
                theirs._internal_losses, theirs._loss_fn, theirs.scale_grads = [], None, True
                theirs._initialize_stage = lambda *args: None
                theirs._step_microbatches()
                found, expected = with_reduce_grad(actions), theirs._stage.actions
            else:
                theirs._stages, theirs.n_local_stages = [None] * local, local
                theirs.microbatches_per_round = n // max(1, n // ranks)
                found = actions
                expected = [action for action in theirs._calculate_single_rank_operations(rank) if action is not None]
            assert str(found) == str(expected), (kind, ranks, local, n, rank)


def kept(actions):
    """The most microbatches whose forward pass is over and whose backward pass is not."""
    now = most = 0
    for action in actions:
        now += {FORWARD: 1, FULL_BACKWARD: -1}[action.computation_type]
        most = max(most, now)
    return most


def test_how_many_activations_an_order_keeps():
    for kind, ranks, _, n, order in all_orders():
        for rank, actions in order.items():
            if kind in ("gpipe", "1f1b"):
                assert kept(actions) == (n if kind == "gpipe" else min(n, ranks - rank))


def test_a_timeline_is_as_short_as_theory_says():
    """With `s` stages and `n` microbatches, GPipe and 1F1B take `2 (n + s - 1)` steps."""
    for kind, ranks, _, n, order in all_orders():
        if kind in ("gpipe", "1f1b"):
            assert {len(row) for row in timeline(order).values()} == {2 * (n + ranks - 1)}


def test_orders_that_cannot_be_run_are_refused():
    good = {rank: gpipe(rank, 2) for rank in range(2)}
    waits = good | {1: [*reversed(good[1])]}
    with pytest.raises(ValueError, match="rank 0 waits for 1B0 to run 0B0, rank 1 waits for 1F1 to run 1B1"):
        check_order(waits, 2, 2)
    with pytest.raises(ValueError, match="1B1 is not in the order"):
        check_order(good | {1: good[1][:-1]}, 2, 2)
    with pytest.raises(ValueError, match="0F0 is in the order of this pipeline twice"):
        check_order(good | {1: [*good[1], Action(0, FORWARD, 0)]}, 2, 2)
    with pytest.raises(ValueError, match="stage 0 is on rank 0 and on rank 1"):
        check_order(good | {1: [*good[1], Action(0, FORWARD, 2)]}, 2, 3)
    with pytest.raises(ValueError, match="1B1: there are 2 stages and 1 microbatches"):
        check_order({1: good[1], 0: gpipe(0, 1)}, 2, 1)
    with pytest.raises(ValueError, match=r"a multiple of the number of rounds \(2\), but got 5"):
        interleaved_1f1b(0, 2, 2, 5)


def test_an_order_is_printed_as_a_table():
    lines = format_order({rank: gpipe(rank, 1) for rank in range(2)}).splitlines()
    assert lines == [
        "        Rank 0  Rank 1", "Step 0  0F0", "Step 1          1F0", "Step 2          1B0", "Step 3  0B0",
    ]  # fmt: skip


# --- microbatches ---


def as_lists(real, value):
    """Nested tensors of either library as lists."""
    if isinstance(value, (torch.Tensor, real.Tensor)):
        return value.tolist()
    if isinstance(value, dict):
        return {key: as_lists(real, v) for key, v in value.items()}
    return [as_lists(real, v) for v in value] if isinstance(value, (list, tuple)) else value


def outcome(real, function):
    try:
        return as_lists(real, function())
    except Exception as error:
        return f"{type(error).__name__}: {str(error).replace('tensorgrad', 'torch')}"


def test_microbatches_are_those_of_pytorch(reference):
    import torch as real
    from torch.distributed.pipelining import microbatch as theirs

    import tensorgrad.distributed.pipelining.microbatch as ours

    def results(lib, module):
        spec, whole = module.TensorChunkSpec, module._Replicate
        x = lib.arange(14).view(7, 2)
        split, merge = module.split_args_kwargs_into_chunks, module.merge_chunks
        for chunks in (1, 2, 3, 7, 9):
            yield lambda: split((x,), None, chunks)
            yield lambda: split((x, 3, [x, {"a": x}]), {"k": x, "flag": True}, chunks)
        yield lambda: split((x, x), {"k": x}, 2, spec.from_tuple((0, 1)), spec.from_dict({"k": 0}))
        yield lambda: split((x, 5), {"k": x}, 3, (spec(0), whole()), {"k": whole})
        yield lambda: split((x[:2],), {"k": x}, 3)
        yield lambda: split((x,), {"k": x[:2]}, 3)
        yield lambda: split((), {"k": x}, 3)
        yield lambda: split((x, x), None, 2, (spec(0),))
        yield lambda: split((x,), None, 2, (None,))
        yield lambda: split((3,), None, 2, (spec(0),))
        parts = [x[:3], x[3:]]
        yield lambda: merge(parts, None)
        yield lambda: merge([{"a": p, "b": (p, p)} for p in parts], None)
        yield lambda: merge([(p.t(), 3) for p in parts], (spec(1), None))
        yield lambda: merge([(p, i) for i, p in enumerate(parts)], (spec(0), None))
        yield lambda: merge([(p.sum(), p) for p in parts], (module.sum_reducer, spec(0)))
        yield lambda: merge([p.sum() for p in parts], module._CustomReducer(lib.tensor(1), lambda a, b: a * b))
        yield lambda: repr(spec(1)).removeprefix(lib.__name__) + str(spec(2))

    pairs = zip(results(torch, ours), results(real, theirs), strict=True)
    for i, (own, other) in enumerate(pairs):
        assert outcome(real, own) == outcome(real, other), i
    with pytest.raises(ValueError, match="did not match chunk spec"):
        merge_chunks([(torch.ones(1), 2)], (TensorChunkSpec(0),))
    assert merge_chunks([torch.ones(())] * 3, sum_reducer) == 3
    assert split_args_kwargs_into_chunks(({},), None, 2)[0] == [({},), ({},)]


def test_descriptions_of_tensors_keep_everything():
    layouts = [Layout((), torch.bool, False), Layout((0, 3), torch.bfloat16, True), Layout((9,) * 7, torch.int8, False)]
    for count in (0, 1, 3, 40):
        assert decode(encode(layouts * count)) == layouts * count


# --- one process ---


def test_stages_on_one_rank_are_the_whole_model(alone):
    parts = [nn.Linear(3, 3).double() for _ in range(3)]
    schedule = ScheduleInterleaved1F1B(
        [PipelineStage(part, i, 3, "cpu") for i, part in enumerate(parts)], 4, loss_fn=nn.MSELoss()
    )
    x, y = torch.randn(8, 3, dtype=torch.float64), torch.randn(8, 3, dtype=torch.float64)
    losses = []
    output = schedule.step(x, target=y, losses=losses)
    found = [part.weight.grad.clone() for part in parts]
    whole = nn.Sequential(*parts)
    whole.zero_grad()
    nn.MSELoss()(whole(x), y).backward()
    for part, gradient in zip(parts, found):
        torch.testing.assert_close(part.weight.grad, gradient, rtol=1e-12, atol=1e-12)
    assert torch.allclose(output, whole(x)) and len(losses) == 4


def test_no_pass_is_run_to_find_shapes_out(alone):
    norm = nn.BatchNorm1d(2)
    ScheduleGPipe(PipelineStage(norm, 0, 1, "cpu"), 3, loss_fn=nn.MSELoss()).step(
        torch.ones(6, 2), target=torch.ones(6, 2)
    )
    assert norm.num_batches_tracked == 3


def test_errors(alone):
    linear, x, y = nn.Linear(3, 2), torch.ones(4, 3), torch.ones(4, 2)
    stage = PipelineStage(linear, 0, 1, "cpu")
    schedule = ScheduleGPipe(stage, 2, loss_fn=nn.MSELoss())
    cases = [
        (ValueError, "Stage index 1 is out of range of 1", lambda: PipelineStage(linear, 1, 1, "cpu")),
        (ValueError, r"Number of microbatches \(0\) must be greater than or equal to the number of stages \(1\)",
         lambda: Schedule1F1B(stage, 0)),
        (ValueError, "there are 2 stages and 1 rank", lambda: ScheduleGPipe(PipelineStage(linear, 0, 2, "cpu"), 2)),
        (ValueError, "1B0 is not in the order of this pipeline",
         lambda: ScheduleInterleaved1F1B([PipelineStage(linear, 0, 2, "cpu")], 2)),
        (PipeliningMetadataError, "Stage 0: loss_fn and target required for last stage", lambda: schedule.step(x)),
        (AssertionError, "Tensor size 1 is smaller than num_chunks", lambda: schedule.step(x[:1], target=y[:1])),
        (ValueError, "Expecting 2 arg_mbs but got 1", lambda: schedule.step(x[:1], target=y)),
        (TypeError, "losses must be a list but got a <class 'int'>", lambda: schedule.step(x, target=y, losses=3)),
        (RuntimeError, r"\[Stage 0\] failed to run forward:\nargs: \('Tensor\(torch.Size\(\[2, 2\]\), grad=False, ",
         lambda: schedule.step(y, target=y)),
        (RuntimeError, r"Please call eval\(\) instead", lambda: torch.no_grad()(schedule.step)(x, target=y)),
        (RuntimeError, "Expecting 2 losses but got 0", lambda: ScheduleGPipe(stage, 2).step(x, losses=[])),
        (PipeliningMetadataError, r"Stage 0 input\[0\]: shape mismatch: torch.Size\(\[9, 9\]\) vs torch.Size",
         lambda: ScheduleGPipe(PipelineStage(linear, 0, 1, "cpu", input_args=torch.ones(9, 9)), 2).step(x)),
        (PipeliningMetadataError, r"Stage 0 output: expected 2 tensors, got 1",
         lambda: ScheduleGPipe(PipelineStage(linear, 0, 1, "cpu", output_args=(y, y)), 2).step(x)),
        (PipeliningMetadataError, "must be a tensor, tuple, or list of tensors, got int.",
         lambda: PipelineStage(linear, 0, 1, "cpu", input_args=3)),
        (PipeliningMetadataError, r"Stage arg\[1\] has type int. All stage args must be tensors. Use kwargs",
         lambda: schedule.step(x, 3, target=y)),
        (NotImplementedError, "dw_builder is not supported",
         lambda: PipelineStage(linear, 0, 1, "cpu", dw_builder=min)),
    ]  # fmt: skip
    for kind, message, call in cases:
        with pytest.raises(kind, match=message):
            call()
    assert schedule.step(x, target=y).shape == (4, 2)  # nothing of it is left
    assert schedule.eval(x).shape == (4, 2)


# --- pipeline() ---


def test_a_sequential_is_divided(alone):
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    x = torch.ones(2, 3)
    for spec in ({"2": SplitPoint.BEGINNING}, {"1": SplitPoint.END}):
        pipe = pipeline(model, (x,), split_spec=spec)
        names = [list(pipe.get_stage_module(i).state_dict()) for i in range(pipe.num_stages)]
        assert names == [["0.weight", "0.bias"], ["2.weight", "2.bias"]]
        assert pipe.get_stage_module(1).get_parameter("2.weight") is model[2].weight
        assert torch.equal(pipe(x), model(x))
    stages = [pipe.build_stage(i, "cpu") for i in range(2)]
    torch.testing.assert_close(ScheduleInterleaved1F1B(stages, 2).step(x), model(x))  # products of fewer rows
    shared = nn.Linear(3, 3)
    cases = [
        (NotImplementedError, "PipelineStage", lambda: pipeline(nn.Linear(3, 3), (x,))),
        (NotImplementedError, "PipelineStage", lambda: pipeline(model, (x,), split_policy=min)),
        (AttributeError, "'Sequential' object has no attribute '7'",
         lambda: pipeline(model, (x,), split_spec={"7": SplitPoint.END})),
        (ValueError, "a stage would be empty", lambda: pipeline(model, (x,), split_spec={"2": SplitPoint.END})),
        (ValueError, "stages 0 and 1 would share the parameter 1.weight",
         lambda: pipeline(nn.Sequential(shared, shared), (x,), split_spec={"0": SplitPoint.END})),
        (ValueError, "Cannot specify both", lambda: pipeline(model, (x,), split_spec={}, split_policy=min)),
        (ValueError, "Invalid stage index 5!", lambda: pipe.get_stage_module(5)),
    ]  # fmt: skip
    for kind, message, call in cases:
        with pytest.raises(kind, match=message):
            call()


# --- several processes ---


@pytest.mark.together
@needs_mpi
@pytest.mark.parametrize("size", [2, 3, 4])
def test_a_pipeline_computes_what_one_process_computes(size):
    assert [output for _, output, _ in run(size, [HERE / "pipelines.py", "correct"])] == ["done\n"] * size


@needs_mpi
def test_a_pipeline_computes_what_pytorch_computes(reference):
    """Two ranks here, one there: the schedules promise the same."""
    import torch as real
    import torch.distributed.pipelining

    real.distributed.init_process_group("gloo", store=real.distributed.HashStore(), rank=0, world_size=1)
    try:
        expected = same_pipeline.results(real, real.distributed, real.distributed.pipelining, reference)
    finally:
        real.distributed.destroy_process_group()
    found = {}
    for _, output, _ in run(2, [HERE / "same_pipeline.py"]):
        found |= json.loads(output)
    assert found.keys() == expected.keys() and len(found) == 4 * 2 * (2 + 4)
    for what, value in expected.items():
        torch.testing.assert_close(flat(found[what]), flat(value), rtol=1e-12, atol=1e-12, msg=what)


def flat(value):
    """The numbers in nested lists, as one tensor."""
    parts = [flat(v) for v in value] if isinstance(value, list) else [torch.tensor([value], dtype=torch.float64)]
    return torch.cat(parts)


@pytest.mark.together
@needs_mpi
def test_a_stage_that_ends_is_named():
    results = run(3, [HERE / "pipelines.py", "dead"], check=False)
    for rank in (0, 2):
        lines = results[rank][1].splitlines()
        assert re.fullmatch(f"DistBackendError: recv from rank 1: {has_ended(1)}", lines[0]), results
        assert len(lines) == 2 and lines[1].startswith("DistBackendError: an earlier operation"), results


@pytest.mark.together
@needs_mpi
def test_ranks_that_disagree_are_told():
    results = run(2, [HERE / "pipelines.py", "disagree"])
    assert results[1][1].splitlines() == [
        "RuntimeError: stage 1 has n_microbatches=3, but stage 0 on rank 0 has n_microbatches=2",
        "RuntimeError: stage 0 on rank 0 runs no backward pass, but stage 1 expects the opposite: give loss_fn to the "
        "schedule on every rank, and call step on all ranks, or eval on all",
    ]


@pytest.mark.together
@needs_mpi
def test_a_stage_that_fails_says_why():
    results = run(2, [HERE / "pipelines.py", "fails"], check=False)
    assert results[1][1].startswith("RuntimeError: [Stage 1] failed to run forward:"), results
    assert re.match(f"DistBackendError: recv from rank 1: {has_ended(1)}", results[0][1]), results
