"""What every rank runs for `test_ddp_models.py`: trains models in each way, and writes losses and weights to a file.

Arguments: the package (`torch` or `tensorgrad`) and the file's name, to which the rank is added.
"""

import functools
import importlib
import pickle
import sys
import warnings

import numpy as np

from tests.distributed.ending import end

lib = importlib.import_module(sys.argv[1])
dist = importlib.import_module(sys.argv[1] + ".distributed")
checkpoint = importlib.import_module(sys.argv[1] + ".utils.checkpoint").checkpoint
nn = lib.nn
warnings.simplefilter("ignore")
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
found = {}


def convnet():
    layers = [nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(36, 3))


class Tied(nn.Module):
    """A character model whose first and last weight are one."""

    def __init__(self):
        super().__init__()
        self.tokens, self.mix, self.head = nn.Embedding(7, 8), nn.Linear(8, 8), nn.Linear(8, 7, bias=False)
        self.norm, self.head.weight = nn.LayerNorm(8), self.tokens.weight

    def forward(self, x):
        x = self.tokens(x)
        return self.head(self.norm(x + nn.functional.gelu(self.mix(x)))).flatten(0, 1)


class Checkpointed(nn.Module):
    """Uses one layer twice, and another one never."""

    def __init__(self, reentrant):
        super().__init__()
        self.reentrant, self.first, self.twice, self.never = reentrant, *(nn.Linear(4, 4) for _ in range(3))

    def forward(self, x):
        x = self.first(x)
        for _ in range(2):
            x = checkpoint(self.twice, x, use_reentrant=self.reentrant).tanh()
        return x


class TwoOutputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x):
        return {"one": self.one(x), "other": [self.two(x)]}


def part(*shape, classes=None):
    """This rank's part of a batch that all ranks know."""
    shape = shape[0] * size, *shape[1:]
    whole = data.integers(classes, size=shape) if classes else data.random(shape)
    return lib.from_numpy(whole[rank::size].astype(np.int64 if classes else np.float32))


def images():
    return part(4, 1, 6, 6), part(4, classes=3)


def letters():
    return part(2, 5, classes=7), part(10, classes=7)


def vectors():
    return part(5, 4), part(5, classes=3)


def train(name, make, batch, steps=3, accumulate=1, to_none=True, loss_of=None, prepare=None, **options):
    """Trains, and notes losses, weights, buffers and which gradients there are."""
    global data
    data = np.random.default_rng(3)
    lib.manual_seed(1)
    model = nn.parallel.DistributedDataParallel(make(), **options)
    model = (prepare or (lambda model: model))(model)
    optimizer, losses = lib.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), []
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=to_none)
        for nr in range(accumulate):
            x, y = batch()
            model.require_backward_grad_sync = nr == accumulate - 1
            loss = (loss_of or (lambda m, x, y: nn.functional.cross_entropy(m(x), y)))(model, x, y)
            loss.backward()
            losses.append(loss.item())
        optimizer.step()
    found[f"{name}: losses"] = np.array(losses)
    for key, value in model.state_dict().items():
        found[f"{name}: {key}"] = value.float().numpy()
    found[f"{name}: gradients"] = np.array([p.grad is not None for p in model.parameters()])
    return model


def cast(model, x, y):
    with lib.autocast("cpu", dtype=lib.bfloat16):
        return nn.functional.cross_entropy(model(x), y)


def pickled(model):
    return pickle.loads(pickle.dumps(model))


def builtin(model):
    model._register_builtin_comm_hook(dist.BuiltinCommHookType.FP16_COMPRESS)
    return model


def one_output(model, x, y):
    return nn.functional.cross_entropy(model(x)["one"], y)


def two_models(name):
    """Like a GAN: the loss of one model depends on the other, too."""
    global data
    data = np.random.default_rng(3)
    lib.manual_seed(1)
    first, second = (nn.parallel.DistributedDataParallel(nn.Linear(4, 4), bucket_cap_mb=1e-5) for _ in range(2))
    for _ in range(3):
        x, y = part(5, 4), part(5, 4)
        lib.nn.functional.mse_loss(second(first(x)), y).backward()
        for model in (first, second):
            with lib.no_grad():
                for p in model.parameters():
                    p -= 0.1 * p.grad
            model.zero_grad()
    parameters = [*first.parameters(), *second.parameters()]
    found[f"{name}: weights"] = np.concatenate([p.detach().numpy().ravel() for p in parameters])


train("convnet", convnet, images)
train("tied", Tied, letters)
train("tied, small buckets", Tied, letters, steps=4, bucket_cap_mb=1e-4)
train("autocast", convnet, images, loss_of=cast)
train("accumulation", Tied, letters, accumulate=3)
train("accumulation in views", Tied, letters, accumulate=3, to_none=False, gradient_as_bucket_view=True)
train("gradients set to zero", Tied, letters, to_none=False)
train("pickled", Tied, letters, prepare=pickled)
train("builtin hook", Tied, letters, prepare=builtin)
for reentrant in (False, True):
    make = functools.partial(Checkpointed, reentrant)
    train(f"static, reentrant {reentrant}", make, vectors, steps=4, static_graph=True)
    train(f"static set later, reentrant {reentrant}", make, vectors, prepare=lambda m: m._set_static_graph() or m)
train("an output without loss", TwoOutputs, vectors, loss_of=one_output, find_unused_parameters=True)
two_models("two models")
np.savez(f"{sys.argv[2]}{rank}.npz", **found)

if sys.argv[1] == "tensorgrad":
    # PyTorch raises an error in the second pass.
    train("static", TwoOutputs, vectors, loss_of=one_output, static_graph=True)
    assert found["static: gradients"].tolist() == [True, True, False, False]
    # Gradients may be parts of buckets, which must not be noticed.
    model = nn.parallel.DistributedDataParallel(nn.Linear(4, 3))
    model(lib.ones(1, 4)).sum().backward()
    kept = model.module.weight.grad
    model.zero_grad()
    model(lib.full((1, 4), 2.0)).sum().backward()
    assert kept.eq(1).all() and model.module.weight.grad.eq(2).all(), "a kept gradient has changed"
    same = model.module.weight.grad
    model(lib.full((1, 4), 2.0)).sum().backward()
    assert model.module.weight.grad is same and same.eq(4).all()
    model.module.weight.grad = own = lib.zeros(3, 4)
    model(lib.ones(1, 4)).sum().backward()
    assert model.module.weight.grad is own and own.eq(1).all()
end(dist)
