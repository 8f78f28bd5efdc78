"""Which modules the rules of `torch.distributed.fsdp.wrap` choose, beside PyTorch."""

import functools
import importlib

import pytest

import tensorgrad

torch = pytest.importorskip("torch", reason="torch is not installed: nothing to compare with")


class Wrapped:
    """A wrapper that says what is in it."""

    def __new__(cls, module, **options):
        module.wrapped = dict(options)
        return module


def model(library):
    nn = library.nn
    layer = nn.TransformerEncoderLayer(8, 2, 16)
    return nn.Sequential(
        nn.Linear(8, 8), nn.TransformerEncoder(layer, 2, enable_nested_tensor=False),
        nn.ModuleList([nn.Linear(8, 30), nn.Linear(30, 30)]), nn.Sequential(nn.Linear(8, 8), nn.ReLU()),
    )  # fmt: skip


def wrap_of(library):
    return importlib.import_module(f"{library.__name__}.distributed.fsdp.wrap")


RULES = {
    "always": lambda w, nn: w.always_wrap_policy,
    "lambda": lambda w, nn: functools.partial(w.lambda_auto_wrap_policy, lambda_fn=lambda m: isinstance(m, nn.ReLU)),
    "transformer": lambda w, nn: functools.partial(
        w.transformer_auto_wrap_policy, transformer_layer_cls={nn.TransformerEncoderLayer}
    ),
    "size": lambda w, nn: functools.partial(w.size_based_auto_wrap_policy, min_num_params=200),
    "small size": lambda w, nn: functools.partial(w.size_based_auto_wrap_policy, min_num_params=60),
    "leaves": lambda w, nn: functools.partial(
        w.size_based_auto_wrap_policy, min_num_params=60, force_leaf_modules={nn.TransformerEncoderLayer},
        exclude_wrap_modules={nn.Linear},
    ),
    "classes": lambda w, nn: w.ModuleWrapPolicy({nn.Linear, nn.LayerNorm}),
}  # fmt: skip


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("only_children", [False, True])
def test_rules_choose_the_same_modules(rule, only_children):
    def chosen(library):
        wrap, made = wrap_of(library), model(library)
        _, elements = wrap._recursive_wrap(
            made, RULES[rule](wrap, library.nn), Wrapped, {made[0]}, set(), only_children, mode=1
        )
        return elements, [name for name, module in made.named_modules() if hasattr(module, "wrapped")]

    assert chosen(tensorgrad) == chosen(torch)


def test_policies_name_the_same_modules():
    def told(library):
        wrap, nn, made = wrap_of(library), library.nn, model(library)
        names = {module: name for name, module in made.named_modules()}

        def choose(module):
            return {"b": 3} if isinstance(module, nn.ReLU) else isinstance(module, nn.LayerNorm)

        for policy in (wrap.ModuleWrapPolicy([nn.Linear]), wrap.CustomPolicy(choose)):
            found = policy._run_policy(made, {made[0]}, {"a": 1, "b": 2})
            yield {names[module]: options for module, options in found.items()}
        with pytest.raises(ValueError) as error:
            wrap.CustomPolicy(lambda module: 3)._run_policy(made, set(), {})
        yield str(error.value)

    assert list(told(tensorgrad)) == list(told(torch))


def test_enable_wrap():
    def story(library):
        wrap, nn = wrap_of(library), library.nn
        yield hasattr(wrap.wrap(nn.ReLU()), "wrapped")
        with wrap.enable_wrap(wrapper_cls=Wrapped, a=1, b=2):
            yield wrap.wrap(nn.ReLU(), b=3).wrapped
            with pytest.raises(NotImplementedError) as error, wrap.enable_wrap(wrapper_cls=Wrapped):
                pass
            yield str(error.value)
        yield hasattr(wrap.wrap(nn.ReLU()), "wrapped")

    assert list(story(tensorgrad)) == list(story(torch))
