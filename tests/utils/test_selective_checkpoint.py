"""Selective checkpointing: PyTorch's gradients and policies, and what is kept does not run again."""

import functools
import importlib

from tests.support.alike import alike, error


def part(torch, name):
    return importlib.import_module(f"{torch.__name__}.utils.{name}")


def policies(torch):
    say = part(torch, "checkpoint").CheckpointPolicy
    return {
        "products are kept": lambda op: say.MUST_SAVE if "mm" in str(op) else say.PREFER_RECOMPUTE,
        "products are not kept": lambda op: say.MUST_RECOMPUTE if "mm" in str(op) else say.PREFER_SAVE,
        "all": lambda op: say.MUST_SAVE,
        "all on the CPU": lambda op: say.MUST_CPU_OFFLOAD,
        "nothing": lambda op: say.MUST_RECOMPUTE,
    }


FUNCTIONS = (
    lambda torch, x, w: ((x @ w).sigmoid() @ w).exp().sum(),
    lambda torch, x, w: (x.sin() @ w).relu().softmax(-1).log().sum(),
    lambda torch, x, w: (x @ w).max(0).values.sum() + torch.nn.functional.layer_norm(x, (4,)).square().sum(),
    lambda torch, x, w: torch.nn.functional.gelu(torch.nn.functional.linear(x, w, w[0])).sum(),
)


@alike
def test_gradients_and_policies(torch):
    checkpoint = part(torch, "checkpoint")
    x, w = torch.randn(4, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)
    found = []
    for function in FUNCTIONS:
        for name, policy in policies(torch).items():
            asked = []

            def told(ctx, op, *args, policy=policy, asked=asked, **kwargs):
                asked.append([ctx.is_recompute, str(op)])
                return policy(op)

            contexts = functools.partial(checkpoint.create_selective_checkpoint_contexts, told)
            run = functools.partial(function, torch)
            y = checkpoint.checkpoint(run, x, w, use_reentrant=False, context_fn=contexts)
            gradients = torch.autograd.grad(y, (x, w))
            for here, there in zip(gradients, torch.autograd.grad(run(x, w), (x, w))):
                assert torch.allclose(here, there)
            found.append([name, len(asked) > 0, {recompute for recompute, _ in asked} == {False}, gradients])
    return found


@alike
def test_what_is_kept_does_not_run_again(torch):
    checkpoint, modes = part(torch, "checkpoint"), part(torch, "_python_dispatch")
    ran = []

    class Watch(modes.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            ran.append(str(func))
            return func(*args, **(kwargs or {}))

    found = []
    for kept in ([], [torch.ops.aten.mm.default], [torch.ops.aten.sin.default, torch.ops.aten.mm.default]):
        contexts = functools.partial(checkpoint.create_selective_checkpoint_contexts, kept)
        x = torch.ones(2, 2, requires_grad=True)
        del ran[:]
        with Watch():
            y = checkpoint.checkpoint(lambda x: (x @ x).sin().exp().sum(), x, use_reentrant=False, context_fn=contexts)
            first = list(ran)
            y.backward()
        again = [name for name in ran[len(first) :] if name in ("aten.sin.default", "aten.exp.default")]
        found.append([first.count("aten.mm.default"), again, x.grad])
    return found


@alike
def test_mistakes(torch):
    checkpoint = part(torch, "checkpoint")
    make = checkpoint.create_selective_checkpoint_contexts
    x = torch.ones(2, 2, requires_grad=True)

    def run(function, twice=False):
        contexts = functools.partial(make, [torch.ops.aten.mm.default])
        y = checkpoint.checkpoint(function, x, use_reentrant=False, context_fn=contexts)
        y.backward(retain_graph=twice)
        if twice:
            y.backward()

    return [
        error(make, 3),
        error(make, [torch.ops.aten.mm]).split(" of type")[0],
        error(run, lambda x: (x @ x).sin().sum(), True),
        error(run, lambda x: (x @ x).mul_(2).sin().sum()),
        [(each.name, each.value) for each in checkpoint.CheckpointPolicy],
    ]
