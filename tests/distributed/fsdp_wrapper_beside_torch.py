"""FullyShardedDataParallel beside PyTorch's own, in the same processes: names, parts, losses, states, errors."""

import functools
import os
import sys
import warnings

import numpy as np
import torch as theirs
import torch.distributed as their_dist
import torch.distributed.fsdp
import torch.distributed.fsdp.wrap

import tensorgrad as ours
import tensorgrad.distributed.fsdp
import tensorgrad.distributed.fsdp.wrap
from tests.distributed.ending import end

warnings.simplefilter("ignore")
SHAPES = {"0.weight": (9, 5), "0.bias": (9,), "2.weight": (9,), "2.bias": (9,), "3.weight": (3, 9), "3.bias": (3,)}


def model(t):
    nn = t.nn
    made = nn.Sequential(nn.Linear(5, 9), nn.Tanh(), nn.LayerNorm(9), nn.Linear(9, 3))
    make = np.random.default_rng(0)
    made.load_state_dict({name: t.from_numpy(make.standard_normal(shape).astype("float32"))
                          for name, shape in SHAPES.items()})  # fmt: skip
    return made


def values(state):
    return {name: value.detach().float().numpy().copy() for name, value in state.items()}


def story(t, x, y, rank, size, strategy, keeps, low, policy):
    """What a program sees: names, shapes, numbers."""
    fsdp, nn = t.distributed.fsdp, t.nn
    wrapper = fsdp.FullyShardedDataParallel
    wrap = sys.modules[f"{t.__name__}.distributed.fsdp.wrap"]
    rule = {
        "none": None, "classes": wrap.ModuleWrapPolicy({nn.Linear}),
        "size": functools.partial(wrap.size_based_auto_wrap_policy, min_num_params=30),
    }[policy]  # fmt: skip
    made = wrapper(
        model(t), device_id=t.device("cpu"), sharding_strategy=getattr(fsdp.ShardingStrategy, strategy),
        use_orig_params=keeps, auto_wrap_policy=rule,
        mixed_precision=fsdp.MixedPrecision(t.bfloat16, t.float32) if low else None,
    )  # fmt: skip
    shapes = [(name, tuple(p.shape)) for name, p in made.named_parameters()]
    optimizer = t.optim.AdamW(made.parameters(), lr=0.02)
    numbers = []
    inputs, targets = t.from_numpy(x).chunk(size)[rank], t.from_numpy(y).chunk(size)[rank]
    for _ in range(3):
        loss = ((made(inputs).float() - targets) ** 2).mean()
        loss.backward()
        norm = made.clip_grad_norm_(1.0)
        optimizer.step()
        optimizer.zero_grad()
        numbers += [loss.item(), norm.item()]
    yield "names and parts", shapes
    yield "losses and norms", numbers
    yield "state", values(made.state_dict())
    kept = wrapper.optim_state_dict(made, optimizer)
    yield "groups", [(group["params"], group["lr"]) for group in kept["param_groups"]]
    # With use_orig_params, PyTorch gathers all of a parameter's state into the same memory, where that is the CPU's:
    # only the last, exp_avg_sq, stays.
    compared = ("exp_avg_sq", "step") if keeps and strategy != "NO_SHARD" else ("exp_avg", "exp_avg_sq", "step")
    yield "optimizer's state", {f"{name} {key}": kept["state"][name][key].float().numpy()
                                for name in sorted(kept["state"]) for key in compared}  # fmt: skip
    loaded = wrapper.optim_state_dict_to_load(made, optimizer, kept)
    yield "keys to load", sorted((key, sorted(value)) for key, value in loaded["state"].items())
    yield "shapes to load", [tuple(loaded["state"][key]["exp_avg"].shape) for key in sorted(loaded["state"])]
    with wrapper.summon_full_params(made):
        yield "whole", [(name, tuple(p.shape)) for name, p in made.named_parameters()]
    yield "type", wrapper.get_state_dict_type(made).state_dict_type.name
    yield "modules", [str(type(module).__name__) for module in made.modules()]


def errors(t):
    """What is refused, and with which exception."""
    fsdp, nn = t.distributed.fsdp, t.nn
    wrapper = functools.partial(fsdp.FullyShardedDataParallel, device_id=t.device("cpu"))
    made = wrapper(model(t))
    inner = wrapper(nn.Sequential(wrapper(nn.Linear(2, 2)), nn.Linear(2, 2)))
    inner.check_is_root()
    frozen = model(t)
    frozen[0].requires_grad_(False)
    mixed = model(t)
    mixed[0].double()
    kind = fsdp.StateDictType
    for attempt in (
        lambda: wrapper(frozen),
        lambda: wrapper(mixed),
        lambda: wrapper(nn.Linear(2, 2), ignored_modules=[nn.Linear(1, 1)], ignored_states=[nn.Linear(1, 1)]),
        lambda: wrapper(nn.Linear(2, 2), ignored_modules=[3]),
        lambda: wrapper(nn.Linear(2, 2), sharding_strategy=fsdp.ShardingStrategy.HYBRID_SHARD),
        lambda: wrapper(made, auto_wrap_policy=lambda **_: True),
        lambda: made.set_state_dict_type(made, kind.SHARDED_STATE_DICT, fsdp.FullStateDictConfig()),
        lambda: made.summon_full_params(made, rank0_only=True).__enter__(),
        lambda: made.summon_full_params(made, with_grads=True).__enter__(),
        lambda: inner[0].clip_grad_norm_(1.0),
        lambda: inner[0].no_sync().__enter__(),
        lambda: made.register_comm_hook(None, 3),
    ):
        try:
            attempt()
            yield None
        except Exception as error:
            yield type(error).__name__


def difference(a, b, tolerance):
    """The first difference, as text; None if there is none."""
    if isinstance(a, dict):
        if list(a) != list(b):
            return f"{list(a)}, here {list(b)}"
        found = ((key, difference(a[key], b[key], tolerance)) for key in a)
        return next((f"{key}: {text}" for key, text in found if text), None)
    if isinstance(a, np.ndarray) or (a and isinstance(a, list) and isinstance(a[0], float)):
        alike = np.shape(a) == np.shape(b) and np.allclose(a, b, rtol=tolerance, atol=tolerance)
    else:
        alike = a == b
    return None if alike else f"{a}, here {b}"


def check(rank, size):
    make = np.random.default_rng(1)
    x, y = make.standard_normal((12, 5)).astype("float32"), make.standard_normal((12, 3)).astype("float32")
    for strategy, keeps, low, policy in (
        ("FULL_SHARD", False, False, "classes"), ("FULL_SHARD", True, False, "size"),
        ("SHARD_GRAD_OP", True, True, "none"), ("NO_SHARD", False, False, "classes"),
        ("NO_SHARD", True, False, "none"), ("FULL_SHARD", False, True, "none"),
    ):  # fmt: skip
        told = [list(story(t, x, y, rank, size, strategy, keeps, low, policy)) for t in (theirs, ours)]
        tolerance = 3e-2 if low else 2e-5  # of bfloat16, whose eight bits both round at other places
        for (what, expected), (_, got) in zip(*told, strict=True):
            text = difference(expected, got, tolerance)
            assert text is None, f"{what}, {strategy}, {keeps}, {low}: {text}"
    expected, got = (list(errors(t)) for t in (theirs, ours))
    assert expected == got, f"{expected}\n{got}"


rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
theirs.set_num_threads(1)
their_dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=rank, world_size=size)
ours.distributed.init_process_group("gloo")
check(rank, size)
ours.distributed.destroy_process_group()
end(their_dist)
