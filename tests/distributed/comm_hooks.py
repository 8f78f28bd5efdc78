"""What every rank runs for `test_comm_hooks.py`: trains with each hook, and writes the weights to a file.

Arguments: the package (`torch` or `tensorgrad`) and the file's name, to which the rank is added.
"""

import importlib
import itertools
import logging
import pickle
import sys

import numpy as np

from tests.distributed.ending import end

lib = importlib.import_module(sys.argv[1])
dist = importlib.import_module(sys.argv[1] + ".distributed")
hooks = importlib.import_module(sys.argv[1] + ".distributed.algorithms.ddp_comm_hooks")
default = importlib.import_module(hooks.__name__ + ".default_hooks")
power = importlib.import_module(hooks.__name__ + ".powerSGD_hook")
debugging = importlib.import_module(hooks.__name__ + ".debugging_hooks")
Kind = hooks.DDPCommHookType
logging.disable()
if sys.argv[1] == "torch":  # 2.13's batched_powerSGD_hook stops at a check that wants one more dimension
    orthogonalize = power._orthogonalize
    power._orthogonalize = lambda m, epsilon=0: orthogonalize(m if m.ndim == 3 else m.unsqueeze(0), epsilon)
    all_gather = dist.all_gather

    def one_tensor(everyones, tensor, group, async_op):  # PyTorch's quantization hooks expect it, and fail with Gloo
        all_gather(everyones, tensor, group=group)
        future = lib.futures.Future()
        future.set_result([lib.stack(everyones)])
        return type("Work", (), {"get_future": lambda self: future})()

    dist.all_gather = one_tensor
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
subgroup = dist.new_group(list(range(size)))


def future_of_ones(state, bucket):
    future = lib.futures.Future()
    future.set_result(lib.ones_like(bucket.buffer()))
    return future.then(lambda f: f.value() * 0.5)


def state(**options):
    return power.PowerSGDState(subgroup, **({"start_powerSGD_iter": 2} | options))


def registered(kind, *given):
    return lambda model: hooks.register_ddp_comm_hook(kind, model, *given)


def hooked(hook, make_state=lambda: None):
    return lambda model: model.register_comm_hook(make_state(), hook)


def unnamed(hook):
    """PyTorch refuses the hooks of bfloat16 by their names, unless there is NCCL."""
    return lambda state, bucket: hook(state, bucket)


CASES = {  # name: (dtype, how to register the hook)
    "allreduce": ("float32", registered(Kind.ALLREDUCE)),
    "allreduce in a group": ("float64", hooked(default.allreduce_hook, lambda: subgroup)),
    "fp16": ("float32", registered(Kind.FP16_COMPRESS, subgroup)),
    "bf16": ("float32", hooked(unnamed(default.bf16_compress_hook))),
    "fp16 wrapper": ("float32", hooked(default.fp16_compress_wrapper(default.allreduce_hook))),
    "bf16 wrapper": ("float32", hooked(unnamed(default.bf16_compress_wrapper(default.allreduce_hook)))),
    "per tensor": ("float32", registered(Kind.QUANTIZE_PER_TENSOR, subgroup)),
    "per channel": ("float32", registered(Kind.QUANTIZE_PER_CHANNEL, subgroup)),
    "noop": ("float32", hooked(debugging.noop_hook)),
    "noop by name": ("float32", registered(Kind.NOOP)),
    "own": ("float32", hooked(future_of_ones)),
    "registered powerSGD": ("float32", registered(Kind.POWER_SGD_RANK2)),
    "powerSGD": ("float64", hooked(power.powerSGD_hook, state)),
    "powerSGD in float32": ("float32", hooked(power.powerSGD_hook, state)),
    "powerSGD 2": ("float64", hooked(power.powerSGD_hook, lambda: state(matrix_approximation_rank=2))),
    "powerSGD 4": ("float64", hooked(power.powerSGD_hook, lambda: state(matrix_approximation_rank=4))),
    "powerSGD, batched shapes": (
        "float64",
        hooked(power.powerSGD_hook, lambda: state(matrix_approximation_rank=3, batch_tensors_with_same_shape=True)),
    ),
    "powerSGD, cold": ("float64", hooked(power.powerSGD_hook, lambda: state(warm_start=False, random_seed=4))),
    "powerSGD, no feedback": (
        "float64",
        hooked(power.powerSGD_hook, lambda: state(use_error_feedback=False, min_compression_rate=0.1)),
    ),
    "powerSGD, epsilon": (
        "float64",
        hooked(power.powerSGD_hook, lambda: state(orthogonalization_epsilon=1e-6, matrix_approximation_rank=2)),
    ),
    "powerSGD, nothing to compress": (
        "float64",
        hooked(power.powerSGD_hook, lambda: state(min_compression_rate=1e9)),
    ),
    "batched powerSGD": ("float64", hooked(power.batched_powerSGD_hook, state)),
    "batched powerSGD, cold": (
        "float64",
        hooked(power.batched_powerSGD_hook, lambda: state(warm_start=False, matrix_approximation_rank=3)),
    ),
    "fp16 powerSGD": ("float32", hooked(default.fp16_compress_wrapper(power.powerSGD_hook), state)),
}
SMALL = {"allreduce", "fp16", "bf16", "noop"}  # also with several buckets (PyTorch's PowerSGD hangs with Gloo then)
# The order of a layer's weight and bias in a bucket is not PyTorch's; random matrices and rows belong to places.
WITHOUT_BIAS = {"per channel", "powerSGD, no feedback", "batched powerSGD", "batched powerSGD, cold"}


def train(dtype, register, steps=5, bias=True, **options):
    dtype, values = getattr(lib, dtype), np.random.RandomState(5)
    sizes, layers = [24, 32, 32, 32, 4], []
    for width, outputs in itertools.pairwise(sizes):
        layers += [lib.nn.Linear(width, outputs, bias=bias), lib.nn.Tanh()]
    model = lib.nn.Sequential(*layers[:-1]).to(dtype)
    with lib.no_grad():
        for parameter in model.parameters():
            parameter.copy_(lib.tensor(values.randn(*parameter.shape) * 0.2, dtype=dtype))
    model = lib.nn.parallel.DistributedDataParallel(model, **options)
    register(model)
    for _ in range(steps):
        x, y = values.randn(size, 6, 24)[rank], values.randn(size, 6, 4)[rank]
        (model(lib.tensor(x, dtype=dtype)) - lib.tensor(y, dtype=dtype)).square().mean().backward()
        with lib.no_grad():
            for parameter in model.parameters():
                parameter.sub_(parameter.grad, alpha=0.05)
                parameter.grad = None
    return np.concatenate([parameter.detach().numpy().reshape(-1) for parameter in model.parameters()])


weights = {name: train(*case, bias=name not in WITHOUT_BIAS) for name, case in CASES.items()}
weights |= {f"{name}, small buckets": train(*CASES[name], bucket_cap_mb=0.005) for name in CASES if name in SMALL}
np.savez(f"{sys.argv[2]}{rank}", **weights)

if sys.argv[1] == "tensorgrad":  # matrices of full rank lose nothing
    full = hooked(power.powerSGD_hook, lambda: state(matrix_approximation_rank=32, min_compression_rate=0.1))
    exact = train("float64", registered(Kind.ALLREDUCE))
    np.testing.assert_allclose(train("float64", full, bucket_cap_mb=0.005), exact, rtol=0, atol=1e-10)

both = state(), state()
train("float64", hooked(power.powerSGD_hook, lambda: both[0]))
train("float64", hooked(power.batched_powerSGD_hook, lambda: both[1]))
copy = pickle.loads(pickle.dumps(both[0]))
found = [one.compression_stats() for one in (*both, copy)], copy.iter, copy.process_group is dist.group.WORLD
print(found, flush=True)
end(dist)
