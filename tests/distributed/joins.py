"""What every rank runs for `test_join.py`: trains with different numbers of inputs, and writes the results to a file.

Arguments: the package (`torch` or `tensorgrad`) and the file's name, to which the rank is added.
"""

import contextlib
import importlib
import sys

import numpy as np

from tests.distributed.ending import end

lib = importlib.import_module(sys.argv[1])
dist = importlib.import_module(sys.argv[1] + ".distributed")
joining = importlib.import_module(sys.argv[1] + ".distributed.algorithms.join")
hooks = importlib.import_module(sys.argv[1] + ".distributed.algorithms.ddp_comm_hooks.default_hooks")
DDP = lib.nn.parallel.DistributedDataParallel
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
results = {}


class Model(lib.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm = lib.nn.Linear(4, 6), lib.nn.BatchNorm1d(6)
        self.second, self.never = lib.nn.Linear(6, 2), lib.nn.Linear(2, 2)

    def forward(self, x):
        return self.second(self.norm(self.first(x)))


def train(name, inputs, unused=False, accumulate=1, hook=None, join=True, joined=None, **options):
    """`inputs`: how many each rank has."""
    values = np.random.RandomState(5)
    model = Model().double()
    if not unused:
        del model.never
    with lib.no_grad():
        for parameter in model.parameters():
            parameter.copy_(lib.tensor(values.randn(*parameter.shape)))
    model = DDP(model, find_unused_parameters=unused, **options)
    if hook:
        model.register_comm_hook(None, hook)
    batches = values.randn(size, max(inputs), 5, 4)[rank, : inputs[rank]]
    norms = []
    with model.join(**joined or {}):
        for number, batch in enumerate(batches):
            batch = lib.tensor(batch)
            steps = (number + 1) % accumulate == 0
            with contextlib.nullcontext() if steps else model.no_sync():
                model(batch).square().mean().backward()
            if steps:
                with lib.no_grad():
                    for parameter in model.parameters():
                        if parameter.grad is not None:
                            norms.append(parameter.grad.norm().item())
                            parameter.sub_(parameter.grad, alpha=0.1)
                            parameter.grad = None
    results[name] = np.concatenate([value.numpy().reshape(-1).astype(float) for value in model.state_dict().values()])
    results[name + ", norms of gradients"] = np.array(norms)
    return model


up, down = [2 + 2 * r for r in range(size)], [2 * size - 2 * r for r in range(size)]
for word, inputs in (("up", up), ("down", down)):
    train(word, inputs)
    train(f"{word}, divided by active", inputs, joined={"divide_by_initial_world_size": False})
    train(f"{word}, small buckets", inputs, bucket_cap_mb=0.0001)
    train(f"{word}, unused", inputs, unused=True)
    train(f"{word}, no buffers", inputs, broadcast_buffers=False)
    train(f"{word}, accumulated", inputs, accumulate=2)
    train(f"{word}, hook", inputs, hook=hooks.allreduce_hook)
    train(f"{word}, views", inputs, gradient_as_bucket_view=True)
train("equal", [3] * size)
train("equal, not enabled", [3] * size, joined={"enable": False})
if sys.argv[1] == "tensorgrad":  # PyTorch's own buckets are not rebuilt then
    train("none", [0, *[3] * (size - 1)])


def message(function):
    try:
        function()
    except (RuntimeError, ValueError, AssertionError) as error:
        return f"{type(error).__name__}: {error}"
    return None


class Counter(joining.Joinable):
    """Adds up a number over the processes in each call."""

    def __init__(self, group=None):
        super().__init__()
        self.group, self.total, self.last = group or dist.group.WORLD, 0, None

    def __call__(self):
        work = joining.Join.notify_join_context(self)
        if work is not None:
            work.wait()
        self.add(1)

    def add(self, value):
        number = lib.tensor([float(value)])
        dist.all_reduce(number, group=self.group)
        self.total += number.item()

    def join_hook(self, **kwargs):
        counter, extra = self, kwargs.get("extra", 0)

        class Hook(joining.JoinHook):
            def main_hook(self):
                counter.add(extra)

            def post_hook(self, is_last_joiner):
                counter.last = is_last_joiner

        return Hook()

    @property
    def join_device(self):
        return lib.device("cpu")

    @property
    def join_process_group(self):
        return self.group


counters = [Counter(), Counter()]
with joining.Join(counters, extra=10):
    for _ in range(up[rank]):
        for counter in counters:
            counter()
messages = [[(counter.total, counter.last) for counter in counters]]
messages.append(message(lambda: joining.Join([])))
other = dist.new_group(list(range(size)))
messages.append(message(lambda: joining.Join([Counter(), Counter(other)])))
messages.append(message(lambda: train("early", up, joined={"throw_on_early_termination": True})))
messages.append(message(lambda: joining.Join.notify_join_context(object())))


def failing():
    with joining.Join([Counter()]):
        raise ValueError("mine")


messages.append(message(failing))
np.savez(f"{sys.argv[2]}{rank}", **results)
print(messages, flush=True)
end(dist)
