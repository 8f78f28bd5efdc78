"""Modules that are computed again in the backward pass: names, gradients and rules are PyTorch's."""

import importlib

import pytest

import tensorgrad

NAME = "distributed.algorithms._checkpoint.checkpoint_wrapper"


def libraries():
    return tensorgrad, pytest.importorskip("torch", reason="compares with PyTorch")


def of(torch, name):
    return importlib.import_module(f"{torch.__name__}.{name}")


def model_of(torch):
    class Named(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.ran = torch.nn.Linear(3, 3), 0

        def forward(self, x, scale=1.0, shift=None):
            self.ran += 1
            return torch.tanh(self.layer(x)) * scale + (0 if shift is None else shift)

    torch.manual_seed(0)
    return Named(), torch.nn.Sequential(torch.nn.Linear(3, 3), Named(), torch.nn.Sequential(torch.nn.Linear(3, 2)))


def test_wrapped_modules_give_the_same_and_run_twice():
    gradients = []
    for torch in libraries():
        room = of(torch, NAME)
        for way in (*room.CheckpointImpl, "offload"):
            inner, _ = model_of(torch)
            module = room.offload_wrapper(inner) if way == "offload" else room.checkpoint_wrapper(inner, way)
            x = torch.linspace(0, 1, 6).reshape(2, 3).requires_grad_()
            module(x, scale=2.0, shift=x).square().sum().backward()
            assert inner.ran == (1 if way == "offload" else 2) and module.layer is inner.layer
            names = [name for name, _ in module.named_parameters()]
            assert names == list(module.state_dict()) == list(inner.state_dict())
            module.load_state_dict(inner.state_dict())
            gradients.append((x.grad.tolist(), inner.layer.weight.grad.tolist()))
    assert len(gradients) == 6
    for found in gradients[1:]:
        for mine, theirs in zip(found, gradients[0], strict=True):
            tensorgrad.testing.assert_close(tensorgrad.tensor(mine), tensorgrad.tensor(theirs))


@pytest.mark.parametrize("rule", ["check", "lambda", "class", "module"])
def test_rules_choose_the_same_modules(rule):
    chosen = []
    for torch in libraries():
        room, wrap = of(torch, NAME), of(torch, "distributed.fsdp.wrap")
        _, model = model_of(torch)
        options = {
            "check": {"check_fn": lambda layer, torch=torch: isinstance(layer, torch.nn.Linear)},
            "lambda": {"auto_wrap_policy": wrap.CustomPolicy(lambda m, torch=torch: isinstance(m, torch.nn.Linear))},
            "class": {"auto_wrap_policy": wrap.ModuleWrapPolicy({torch.nn.Sequential})},
            "module": {"checkpoint_wrapper_fn": room.offload_wrapper},
        }[rule]
        room.apply_activation_checkpointing(model, **options)
        chosen.append([(name, type(m).__name__) for name, m in model.named_modules()])
    assert chosen[0] == chosen[1] and any(kind.endswith("Wrapper") for _, kind in chosen[0])


def test_what_is_not_a_rule_is_refused():
    for torch in libraries():
        with pytest.raises(ValueError, match="to be callable or be a pre-defined wrap policy"):
            of(torch, NAME).apply_activation_checkpointing(model_of(torch)[1], auto_wrap_policy=3)
