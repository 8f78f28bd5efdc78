"""What every rank runs for `test_pipelining.py`: `python pipelines.py CASE`. Each rank has the whole model, too."""

import copy
import os
import random
import signal
import sys

import tensorgrad as torch
import tensorgrad.distributed as dist
from tensorgrad.distributed.fsdp import fully_shard
from tensorgrad.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleLoopedBFS,
)
from tensorgrad.distributed.pipelining.orders import FORWARD, FULL_BACKWARD, Action
from tensorgrad.distributed.pipelining.schedules import PipelineScheduleMulti, _ScheduleForwardOnly
from tensorgrad.nn.parallel import DistributedDataParallel

nn = torch.nn
ALL = (ScheduleGPipe, Schedule1F1B, ScheduleInterleaved1F1B, ScheduleLoopedBFS)


def mlp(n_stages):
    return [nn.Sequential(nn.Linear(5, 5), nn.Tanh(), nn.BatchNorm1d(5, momentum=0.5).eval()) for _ in range(n_stages)]


def transformer(n_stages):
    layers = [nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True) for _ in range(n_stages)]
    layers[0] = nn.Sequential(nn.Embedding(7, 4), layers[0])
    layers[-1] = nn.Sequential(layers[-1], nn.Linear(4, 5))
    return layers


def data(kind, batch):
    x = torch.randn(batch, 5, dtype=torch.float64) if kind is mlp else torch.randint(7, (batch, 3))
    return x, torch.randn(*((batch, 5) if kind is mlp else (batch, 3, 5)), dtype=torch.float64)


def models(kind, n_stages):
    torch.manual_seed(3)
    parts = [part.double() for part in kind(n_stages)]
    return parts, nn.Sequential(*copy.deepcopy(parts))


def make(schedule, parts, n_microbatches, group=None, **options):
    own = range(dist.get_rank(group), len(parts), dist.get_world_size(group))
    stages = [PipelineStage(parts[i], i, len(parts), "cpu", group=group) for i in own]
    return schedule(stages if issubclass(schedule, PipelineScheduleMulti) else stages[0], n_microbatches, **options)


def run(schedule, x, y, losses=None, **options):
    """A step with the arguments that each rank has to give."""
    last = any(stage.is_last for stage in schedule._stages)
    args = (x,) if any(stage.is_first for stage in schedule._stages) else ()
    return schedule.step(*args, target=y if last else None, losses=losses, **options)


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def compare(schedule, whole):
    for stage in schedule._stages:
        for (name, own), (_, other) in zip(
            stage.submod.named_parameters(), whole[stage.stage_index].named_parameters(), strict=True
        ):
            assert (own.grad is None) == (other.grad is None), (stage.stage_index, name)
            if own.grad is not None:
                close(own.grad, other.grad)
            close(own, other)


def test_training(kind, cls, rank, size):
    """Steps with batches of several sizes: also such as do not divide into microbatches of one size."""
    n_stages = size * (2 if issubclass(cls, PipelineScheduleMulti) else 1)
    for reduction in ("mean", "sum"):
        parts, whole = models(kind, n_stages)
        n = 6 if size == 3 else 4
        loss_fn = nn.MSELoss(reduction=reduction)
        rate = 0.1 if reduction == "mean" else 1e-3
        schedule = make(cls, parts, n, loss_fn=loss_fn, scale_grads=reduction == "mean")
        optimizers = [torch.optim.SGD(p, lr=rate, momentum=0.9) for p in (parts_of(schedule), whole.parameters())]
        for batch in (2 * n, 3 * n) if reduction == "mean" else (2 * n + 1, n):
            x, y = data(kind, batch)
            for optimizer in optimizers:
                optimizer.zero_grad()
            expected = whole(x)
            loss = loss_fn(expected, y)
            loss.backward()
            losses = ["old"]
            output = run(schedule, x, y, losses)
            compare(schedule, whole)
            if any(stage.is_last for stage in schedule._stages):
                close(output, expected.detach())
                total = torch.stack(losses).sum()
                close(total / n if reduction == "mean" else total, loss.detach())
                assert len(losses) == n and not losses[0].requires_grad
            else:
                assert output is None and losses == ["old"]
            for optimizer in optimizers:
                optimizer.step()
    with torch.no_grad():
        x, y = data(kind, 2 * n)
        losses = []
        last = any(stage.is_last for stage in schedule._stages)
        output = schedule.eval(
            *((x,) if rank == 0 else ()), target=y if last else None, losses=losses if last else None
        )
        if last:
            close(output, whole(x))
            close(torch.stack(losses).sum(), loss_fn(whole(x), y))
        schedule.eval(*((x,) if rank == 0 else ()))  # no target: no losses
    compare(schedule, whole)  # as it was


def parts_of(schedule):
    return [p for stage in schedule._stages for p in stage.submod.parameters()]


class Several(nn.Module):
    """Passes on several tensors: one as it came, one of integers, one that nothing depends on; and takes arguments."""

    def __init__(self, first):
        super().__init__()
        self.first, self.linear = first, nn.Linear(3, 3)

    def forward(self, x, plain=None, numbers=None, unused=None, *, mask, factor=1.0):
        if self.first:
            plain, numbers = x * 2, torch.arange(len(x))
        y = self.linear(x) * mask * factor + plain * numbers[:, None]
        return y, plain, numbers, y * 5


class Last(Several):
    def forward(self, x, plain, numbers, unused, *, mask, factor=1.0):
        return {"y": super().forward(x, plain, numbers, unused, mask=mask, factor=factor)[0], "n": numbers}


def test_several_tensors(cls, size):
    torch.manual_seed(5)
    parts = [(Last if i == size - 1 else Several)(i == 0).double() for i in range(size)]
    whole = nn.ModuleList(copy.deepcopy(parts))
    x, mask = torch.randn(8, 3, dtype=torch.float64), torch.rand(3, 8, dtype=torch.float64).t()
    x.requires_grad_()
    schedule = make(
        cls, parts, size, loss_fn=lambda output, target, scale: (output["y"] * target).sum() * scale,
        scale_grads=False,
    )  # fmt: skip
    target = torch.randn(8, 3, dtype=torch.float64)
    output = run(schedule, x, target, loss_kwargs={"scale": 3.0}, mask=mask, factor=0.5)
    own_grad, x.grad = x.grad, None
    numbers = torch.cat([torch.arange(len(part)) for part in x.tensor_split(size)])
    values = (x, x * 2, numbers, None)
    for part in whole:
        part.first = False
        values = part(*values, mask=mask, factor=0.5)
    (values["y"] * target).sum().mul(3.0).backward()
    compare(schedule, whole)
    if dist.get_rank() == 0:
        close(own_grad, x.grad)
    if dist.get_rank() == size - 1:
        close(output["y"], values["y"].detach())
        assert torch.equal(output["n"], numbers)


class Counted(torch.autograd.Function):
    """Counts how many of its nodes are alive."""

    alive = most = 0

    class Mark:
        def __init__(self):
            Counted.alive += 1
            Counted.most = max(Counted.most, Counted.alive)

        def __del__(self):
            Counted.alive -= 1

    @staticmethod
    def forward(ctx, x):
        ctx.mark = Counted.Mark()
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return g


class Counting(nn.Linear):
    def forward(self, x):
        return Counted.apply(super().forward(x))


def test_activations(rank, size):
    for cls, most in ((Schedule1F1B, size - rank), (ScheduleGPipe, 12)):
        schedule = make(cls, [Counting(4, 4) for _ in range(size)], 12, loss_fn=nn.MSELoss())
        for _ in range(2):
            Counted.most = Counted.alive = 0
            run(schedule, torch.ones(12, 4), torch.ones(12, 4))
            assert (Counted.most, Counted.alive) == (most, 0), (cls, rank, Counted.most, Counted.alive)


def random_order(size, n_local, n_microbatches, seed):
    """Some order in which everything can run: microbatches overtake each other."""
    draw, last = random.Random(seed), size * n_local - 1
    order, over = {rank: [] for rank in range(size)}, set()
    waiting = [
        Action(s, k, m) for s in range(last + 1) for k in (FORWARD, FULL_BACKWARD) for m in range(n_microbatches)
    ]
    while waiting:
        ready = []
        for s, k, m in waiting:
            needs = [(s - 1, FORWARD, m)] if k == FORWARD else [(s, FORWARD, m), (s + 1, FULL_BACKWARD, m)]
            if all(need in over or not 0 <= need[0] <= last for need in needs):
                ready.append(Action(s, k, m))
        action = draw.choice(ready)
        order[action.stage_index % size].append(action)
        over.add(action)
        waiting.remove(action)
    return order


def test_any_order(size):
    for seed in range(2):

        class Some(PipelineScheduleMulti):
            def _order_of_rank(self, rank):
                return random_order(size, 2, 5, seed)[rank]

        parts, whole = models(mlp, 2 * size)
        schedule = make(Some, parts, 5, loss_fn=nn.MSELoss(reduction="sum"), scale_grads=False)
        x, y = data(mlp, 11)
        run(schedule, x, y)
        nn.MSELoss(reduction="sum")(whole(x), y).backward()
        compare(schedule, whole)


def test_replicas(rank):
    """Two replicas of two stages: gradients are averaged over the replicas, once."""
    pipelines, replicas = ([dist.new_group(ranks) for ranks in pairs] for pairs in PAIRS)
    for cls in (Schedule1F1B, ScheduleInterleaved1F1B):
        n_stages = 2 if cls is Schedule1F1B else 4
        parts, whole = models(mlp, n_stages)
        group = replicas[rank % 2]
        own = set(range(rank % 2, n_stages, 2))
        wrapped = [DistributedDataParallel(p, process_group=group) if i in own else p for i, p in enumerate(parts)]
        schedule = make(cls, wrapped, 4, pipelines[rank // 2], loss_fn=nn.MSELoss())
        for _ in range(3):
            x, y = data(mlp, 16)
            whole.zero_grad()
            for part in parts:
                part.zero_grad()
            nn.MSELoss()(whole(x), y).backward()
            half = slice(0, 8) if rank < 2 else slice(8, 16)
            run(schedule, x[half], y[half])
            compare(schedule, whole)


def test_shards(rank):
    """The same with weights divided between the two replicas."""
    mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("replica", "stage"))
    parts, whole = models(mlp, 2)
    fully_shard(parts[rank % 2], mesh=mesh["replica"])
    schedule = make(Schedule1F1B, parts, 4, mesh.get_group("stage"), loss_fn=nn.MSELoss())
    x, y = data(mlp, 16)
    nn.MSELoss()(whole(x), y).backward()
    half = slice(0, 8) if rank < 2 else slice(8, 16)
    run(schedule, x[half], y[half])
    for own, other in zip(parts[rank % 2].parameters(), whole[rank % 2].parameters(), strict=True):
        close(own.grad.full_tensor(), other.grad)


PAIRS = (((0, 1), (2, 3)), ((0, 2), (1, 3)))


def correct(rank, size):
    for cls in ALL:
        test_training(mlp, cls, rank, size)
        if size == 3 or cls is Schedule1F1B:
            test_training(transformer, cls, rank, size)
    for cls in (ScheduleGPipe, Schedule1F1B):
        test_several_tensors(cls, size)
    test_activations(rank, size)
    test_any_order(size)
    if size == 4:
        test_replicas(rank)
        test_shards(rank)
    parts, whole = models(mlp, size)
    output = run(make(_ScheduleForwardOnly, parts, 2), (x := data(mlp, 4)[0]), None)
    if rank == size - 1:
        close(output, whole(x))


class Ends(nn.Linear):
    """Ends its process in the third microbatch."""

    calls = 0

    def forward(self, x):
        Ends.calls += 1
        if Ends.calls == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(x)


def report(function):
    try:
        function()
    except Exception as error:
        print(f"{type(error).__name__}: {error}", flush=True)


case = sys.argv[1]
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
if case == "correct":
    correct(rank, size)
    print("done")
elif case == "dead":
    parts = [Ends(5, 5) if i == 1 else nn.Linear(5, 5) for i in range(size)]
    schedule = make(Schedule1F1B, parts, 6, loss_fn=nn.MSELoss())
    report(lambda: run(schedule, torch.ones(12, 5), torch.ones(12, 5)))
    report(lambda: dist.barrier())
elif case == "fails":
    parts = [nn.Linear(5, 5), nn.Linear(4, 5)]
    schedule = make(ScheduleGPipe, parts, 2, loss_fn=nn.MSELoss())
    report(lambda: run(schedule, torch.ones(12, 5), torch.ones(12, 5)))
    if rank == 1:
        os._exit(1)  # a rank that failed; the other one sees that it ended
elif case == "disagree":
    for group, count, loss_fn in (
        (dist.new_group(), 2 + rank, None),
        (dist.new_group(), 2, nn.MSELoss() if rank else None),
    ):
        schedule = make(ScheduleGPipe, [nn.Linear(5, 5), nn.Linear(5, 5)], count, group, loss_fn=loss_fn)
        report(lambda: run(schedule, torch.ones(12, 5), torch.ones(12, 5)))
if case in ("correct", "disagree"):
    dist.destroy_process_group()
