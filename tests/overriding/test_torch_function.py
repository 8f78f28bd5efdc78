"""Classes and modes that override functions are asked about what was called, not about the ops that it is made of."""

import pytest

import tensorgrad
import tensorgrad.overrides

torch = pytest.importorskip("torch", reason="torch is not installed: nothing to compare with")


def overriding(library, seen):
    """A class of tensors and a class of other objects that note the functions that are called."""

    class Noted(library.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            seen.append((func, tuple(t.__name__ for t in types), len(args), sorted(kwargs or {})))
            return super().__torch_function__(func, types, args, kwargs or {})

    class Other:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            seen.append((func, tuple(t.__name__ for t in types), len(args), sorted(kwargs or {})))
            return "the other's"

    return Noted, Other


FUNCTIONS = {
    "linalg.cholesky": lambda l, f, a: f(a),
    "linalg.norm": lambda l, f, a: f(a),
    "linalg.solve": lambda l, f, a: f(a, a),
    "fft.fft": lambda l, f, a: f(a),
    "einsum": lambda l, f, a: f("ij,jk->ik", a, a),
    "einsum of a list": lambda l, f, a: f("ij,jk->ik", [a, a]),
    "std": lambda l, f, a: f(a, 0),
    "softmax": lambda l, f, a: f(a, dim=1),
    "stack": lambda l, f, a: f([a, a]),
    "broadcast_tensors": lambda l, f, a: f(a, a),
    "median": lambda l, f, a: f(a),
    "unique": lambda l, f, a: f(a),
    "logdet": lambda l, f, a: f(a),
    "topk": lambda l, f, a: f(a, 1, largest=False),
    "tensordot": lambda l, f, a: f(a, a, 1),
    "nn.functional.interpolate": lambda l, f, a: f(a, scale_factor=2),
    "nn.functional.mse_loss": lambda l, f, a: f(a, a, reduction="sum"),
    "nn.functional.normalize": lambda l, f, a: f(a),
    "zeros_like": lambda l, f, a: f(a),
    "add": lambda l, f, a: f(a, 1),
}
METHODS = {
    "norm": lambda a: a.norm(),
    "reshape": lambda a: a.reshape(-1),
    "std": lambda a: a.std(),
    "add_": lambda a: a.add_(1),
    "chunk": lambda a: a.chunk(2),
    "expand_as": lambda a: a.expand_as(a),
    "softmax": lambda a: a.softmax(0),
    "__getitem__": lambda a: a[0],
}


def found(library, name):
    for part in name.split("."):
        library = getattr(library, part)
    return library


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_ask_once_and_by_their_own_name(name):
    def story(library):
        seen, told = [], []
        Noted, Other = overriding(library, seen)
        function = found(library, name.split()[0])
        x = library.tensor([[2.0, 0.5], [0.5, 3.0]])
        x = x[None] if "interpolate" in name else x
        values = [Other(), x.as_subclass(Noted)]
        for value in values:
            seen.clear()
            result = FUNCTIONS[name](library, function, value)
            told.append([(func is function, types) for func, types, *_ in seen])
            told.append(result if isinstance(result, str) else str(result))
        return told

    assert story(tensorgrad)[0] == story(torch)[0] == [(True, ("Other",))]
    assert story(tensorgrad)[1:] == story(torch)[1:]


@pytest.mark.parametrize("name", METHODS)
def test_methods_ask_subclasses_once(name):
    def story(library):
        seen = []
        Noted, _ = overriding(library, seen)
        x = library.tensor([[2.0, 0.5], [0.5, 3.0]]).as_subclass(Noted)
        seen.clear()
        result = METHODS[name](x)
        return [(func is getattr(library.Tensor, name), types) for func, types, *_ in seen], str(result)

    assert story(tensorgrad) == story(torch)


def test_what_the_caller_wrote_is_passed_on():
    """A handler need not know parameters that were not given; what follows one that was left out has its name."""
    for library in (tensorgrad, torch):
        seen = []
        _, Other = overriding(library, seen)
        library.linalg.cholesky(Other())
        library.linalg.cholesky(Other(), upper=True)
        library.clamp(Other(), max=1)
        assert [entry[2:] for entry in seen] == [(1, []), (1, ["upper"]), (1, ["max"])]


def test_modes_see_functions_before_what_they_are_made_of():
    def story(library):
        seen = []

        class Mode(library.overrides.TorchFunctionMode):
            def __torch_function__(self, func, types, args=(), kwargs=None):
                seen.append(func.__name__.removeprefix("linalg_"))
                return func(*args, **(kwargs or {}))

        x = library.eye(2)
        with Mode():
            library.nn.functional.cross_entropy(x, library.tensor([0, 1]))
            library.linalg.cholesky(x)
            library.einsum("ij->ji", x)
            library.zeros(2)
        return seen

    assert story(tensorgrad) == story(torch)


def test_a_handler_that_fails_is_asked_once():
    for library in (tensorgrad, torch):
        asked = []

        class Fails:
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                asked.append(func)
                raise ValueError("mine")

        with pytest.raises(ValueError, match="mine"):
            library.linalg.cholesky(Fails())
        with pytest.raises(ValueError, match="mine"):
            library.einsum("ij->ji", Fails())
        assert len(asked) == 2


def test_a_state_may_hold_what_is_like_a_tensor():
    """Such as tensors that are read from a file when they are first used."""

    def story(library):
        class Later:
            def __init__(self, values):
                self.values = values

            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                return func(*(a.values if isinstance(a, cls) else a for a in args), **(kwargs or {}))

            def __getattr__(self, name):
                return getattr(self.values, name)

        layer, norm = library.nn.Linear(3, 2), library.nn.BatchNorm1d(2)
        found = [layer.load_state_dict({"weight": Later(library.ones(2, 3)), "bias": Later(library.zeros(2))})]
        found += [norm.load_state_dict({k: Later(v + 1) for k, v in norm.state_dict().items()})]
        found += [layer.weight.tolist(), norm.running_mean.tolist(), norm.num_batches_tracked.item()]
        found += [library.zeros(2).copy_(Later(library.ones(2))).tolist()]
        for wrong in (Later(library.ones(3, 3)), [1.0], type("Shape", (), {"shape": (2, 3)})()):
            with pytest.raises(RuntimeError) as raised:
                layer.load_state_dict({"weight": wrong, "bias": library.zeros(2)})
            found.append(str(raised.value).split("received")[0])
        return [str(item) for item in found]

    assert story(tensorgrad) == story(torch)


def test_layers_ask_about_the_functions_that_they_call():
    def story(library):
        seen = []
        Noted, _ = overriding(library, seen)
        x = library.ones(1, 3, 4, 4).as_subclass(Noted)
        with library.no_grad():
            layers = library.nn.Sequential(library.nn.Conv2d(3, 2, 1), library.nn.ReLU(), library.nn.MaxPool2d(2))
            seen.clear()
            layers(x)
        return [func.__name__ for func, *_ in seen if func.__name__ not in ("dim", "__get__")]

    assert story(tensorgrad) == story(torch)
