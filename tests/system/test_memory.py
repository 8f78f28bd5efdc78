"""Memory: reference counting alone frees everything, so these tests run with the garbage collector disabled."""

import gc
import resource
import sys
import tracemalloc
import weakref

import pytest

import tensorgrad as torch
from tensorgrad.autograd.graph import Node
from tensorgrad.storage.stubs import Storage


@pytest.fixture(autouse=True, scope="module")
def no_collector():
    """Disables the garbage collector, and hides existing objects from it (and so from `living`)."""
    gc.collect()
    gc.freeze()
    gc.disable()
    yield
    gc.enable()
    gc.unfreeze()


@pytest.fixture(autouse=True)
def clean_start():
    """Removes everything left over from the previous test."""
    gc.collect()


def living() -> dict:
    """Counts the tensors, nodes and storages."""
    counts = {"tensors": 0, "nodes": 0, "storages": 0}
    for thing in gc.get_objects():
        cls = type(thing)
        if issubclass(cls, torch.Tensor):
            counts["tensors"] += 1
        elif issubclass(cls, Node):
            counts["nodes"] += 1
        elif issubclass(cls, Storage):
            counts["storages"] += 1
    return counts


def frees_everything(function) -> None:
    """Asserts that calling `function` leaves no tensor, node or storage behind."""
    function()  # creates what is made once and kept (caches, lazily built functions)
    before = living()
    for _ in range(3):
        function()
    assert living() == before


# --- training does not grow ----------------------------------------------------------------------------------------


def small_network():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(10, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
    return model, torch.optim.Adam(model.parameters(), lr=0.01), torch.randn(8, 10), torch.randint(0, 3, (8,))


def step(model, optimizer, x, y) -> float:
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.item()


@pytest.mark.machine("when the system and Python's allocator give memory back")
def test_a_thousand_steps_do_not_grow():
    things = small_network()
    for _ in range(20):
        first = step(*things)
    before = living()
    tracemalloc.start()
    step(*things)
    size, _ = tracemalloc.get_traced_memory()
    for _ in range(300):
        step(*things)
    grown = tracemalloc.get_traced_memory()[0] - size
    tracemalloc.stop()
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(700):
        last = step(*things)
    assert living() == before
    assert grown < 60_000, f"{grown} bytes more after 300 steps"  # Python keeps up to 2,000 freed tuples of each length
    unit = 1 if sys.platform == "darwin" else 1024
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - resident) * unit < 4e6
    assert last < first  # it has actually trained


def test_activations_are_freed_during_backward():
    """Backward releases what it has used: its peak is about that of forward."""
    n, depth = 100_000, 20
    x = torch.ones(n, requires_grad=True)

    def forward():
        y = x
        for _ in range(depth):
            y = y.exp() * 1e-3
        return y.sum()

    forward().backward()
    x.grad = None
    tracemalloc.start()
    y = forward()
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    y.backward()
    peak = tracemalloc.get_traced_memory()[1]
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert held > depth * n * 4 * 0.9
    assert peak < held + 5 * n * 4
    assert after < 3 * n * 4


def test_checkpoints_save_memory():
    n, depth = 100_000, 20
    x = torch.ones(n, requires_grad=True)

    def deep(y):
        for _ in range(depth):
            y = y.exp() * 1e-3
        return y

    # Run once before measuring: modules imported by the first call use memory too.
    torch.utils.checkpoint.checkpoint(deep, x, use_reentrant=False, preserve_rng_state=False).sum().backward()
    x.grad = None
    tracemalloc.start()
    y = torch.utils.checkpoint.checkpoint(deep, x, use_reentrant=False, preserve_rng_state=False)
    held = tracemalloc.get_traced_memory()[0]
    y.sum().backward()
    del y
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert held < 3 * n * 4
    assert after < 3 * n * 4


# --- nothing outlives its last reference ---------------------------------------------------------------------------


def dies(make) -> None:
    """Asserts that every tensor in the result of `make()` is freed with it."""
    made = make()
    references = [weakref.ref(t) for t in made]
    assert all(reference() is not None for reference in references)
    del made
    assert [reference() for reference in references] == [None] * len(references)


def test_a_graph_that_is_never_used():
    def make():
        x = torch.ones(3, requires_grad=True)
        y = (x * 2).exp()
        return [x, y, y.sum(), y[0], y.view(3, 1)]

    dies(make)
    frees_everything(make)


def test_a_graph_after_backward():
    def make(**options):
        x = torch.ones(3, requires_grad=True)
        y = (x * 2).exp()
        y.sum().backward(**options)
        return [x, y, x.grad]

    dies(make)
    dies(lambda: make(retain_graph=True))
    frees_everything(make)


def test_the_result_alone_does_not_keep_what_was_not_saved():
    x = torch.ones(3, requires_grad=True)
    middle = x + 1  # its value is not used in any formula
    y = middle + 2
    reference = weakref.ref(middle)
    del middle
    assert reference() is None
    y.sum().backward()
    assert x.grad.tolist() == [1, 1, 1]


def test_writes_in_place():
    def make():
        x = torch.ones(2, 3, requires_grad=True)
        y = x * 2
        z = y * y.sum(0)  # z and others have saved y ...
        w = torch.ones(2, 3) * y
        y[0] += 1  # ... which now depends on itself
        y.add_(z)
        y.mul_(y)
        v = y.view(-1)
        v[1:3].exp_()
        y[1] = w[0]
        return [x, y, z, w, v, y.sum()]

    dies(make)
    frees_everything(make)


def test_writes_where_the_saved_tensor_becomes_its_own_history():
    def make():
        x = torch.ones(3, requires_grad=True)
        y = x.exp()  # saves y
        z = y * 2
        base = torch.zeros(4)
        base[1:] = z
        base.mul_(base)
        base.exp_()  # saves its output, base
        base.sum().backward()
        other = torch.zeros(4)
        other[1:] = z.detach().requires_grad_()
        other.exp_()
        other[0].sin_()  # overwrites what exp_ saved, which is fine without backward
        return [x, y, z, base, other]

    dies(make)
    frees_everything(make)


def function_saving(what):
    class Exp(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x.exp()
            ctx.save_for_backward(*{"input": [x], "output": [y], "both": [x, y]}[what])
            ctx.shape = x.shape
            return y

        @staticmethod
        def backward(ctx, g):
            return g * ctx.saved_tensors[-1]

    return Exp


@pytest.mark.parametrize("what", ["input", "output", "both"])
@pytest.mark.parametrize("used", [False, True])
def test_custom_functions(what, used):
    Exp = function_saving(what)

    def make():
        x = torch.ones(3, requires_grad=True)
        y = Exp.apply(x * 2)
        if used:
            y.sum().backward(retain_graph=True)
            torch.autograd.grad(torch.autograd.grad(y.sum(), x, create_graph=True)[0].sum(), x)
        return [x, y]

    dies(make)
    frees_everything(make)


def test_custom_functions_that_write():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            x.mul_(2)
            ctx.mark_dirty(x)
            ctx.save_for_backward(x)
            return x

        @staticmethod
        def backward(ctx, g):
            return g * 2

    def make():
        x = torch.ones(3, requires_grad=True)
        y = Double.apply(x * 1)
        y.sum().backward()
        return [x, y]

    dies(make)
    frees_everything(make)


def test_hooks():
    def make():
        x = torch.ones(3, requires_grad=True)
        y = x * 2
        seen = []
        handles = [x.register_hook(lambda g: g * 2), y.register_hook(seen.append)]
        y.grad_fn.register_hook(lambda i, o: None)
        y.grad_fn.register_prehook(lambda o: None)
        x.register_post_accumulate_grad_hook(lambda t: None)
        y.retain_grad()
        z = y.exp()
        z.sum().backward()
        node = y.grad_fn.next_functions[0][0]
        assert node.variable is x
        handles[0].remove()
        return [x, y, z, y.grad, *seen]

    dies(make)
    frees_everything(make)


def test_groups_of_hooks():
    def make():
        a, b = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
        handle = torch.autograd.graph.register_multi_grad_hook((a, b), lambda grads: None)
        (a * b).sum().backward()
        handle.remove()
        return [a, b]

    dies(make)
    frees_everything(make)


def test_hooks_on_saved_tensors():
    def make():
        x = torch.ones(3, requires_grad=True)
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
            y = (x * x).exp()  # packs y's own values
            z = y.tanh()
            z.mul_(y)
        (g,) = torch.autograd.grad(z.sum(), x, create_graph=True)
        g.sum().backward()
        return [x, y, z, g]

    dies(make)
    frees_everything(make)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints(reentrant):
    def make():
        x = torch.ones(3, requires_grad=True)
        y = torch.utils.checkpoint.checkpoint(lambda x: (x * x).exp() * x, x, use_reentrant=reentrant)
        z = torch.utils.checkpoint.checkpoint(lambda x: x.sin(), y, use_reentrant=reentrant)
        z.sum().backward(retain_graph=True)
        return [x, y, z]

    dies(make)
    frees_everything(make)


def test_double_backward():
    def make():
        x = torch.ones(3, requires_grad=True)
        y = (x * x).exp()
        (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        (second,) = torch.autograd.grad((first * first).sum(), x, create_graph=True)
        return [x, y, first, second]

    dies(make)
    frees_everything(make)


def test_modes_and_copies():
    import copy
    import pickle

    def make():
        x = torch.ones(3, requires_grad=True)
        with torch.inference_mode():
            y = x * 2
            y.add_(1)
        with torch.no_grad():
            z = x[0]
        made = [x, y, z, copy.deepcopy(x), pickle.loads(pickle.dumps(x)), x.detach(), x.data]
        with torch.autograd.set_detect_anomaly(True):
            w = (x * 2).exp()
            w.sum().backward()
        return [*made, w]

    dies(make)
    frees_everything(make)


def test_functional():
    def make():
        x = torch.tensor([1.0, 2.0])
        F = torch.autograd.functional
        loss = lambda x: (x**3).sum()
        return [
            F.jacobian(lambda x: x * x, x),
            F.hessian(loss, x),
            F.hvp(loss, x, x)[1],
            F.jvp(lambda x: x * x, x, x)[1],
            x,
        ]

    dies(make)
    frees_everything(make)


def test_modules_and_optimizers():
    def make():
        model, optimizer, x, y = small_network()
        for _ in range(3):
            step(model, optimizer, x, y)
        return [x, y]

    dies(make)


# --- a long chain --------------------------------------------------------------------------------------------------


def test_a_chain_of_100_000_ops():
    """Forward, backward, double backward (of a part) and deallocation, all without recursion."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(400)
    try:
        x = torch.ones(1, requires_grad=True)
        y = x
        for _ in range(50_000):
            y = y + 1
            y = y * 1
        y.backward(retain_graph=True)
        assert x.grad.item() == 1
        (g,) = torch.autograd.grad(y, x, retain_graph=True)
        assert g.item() == 1
        del g
        before = living()["nodes"]
        del y
        assert living()["nodes"] <= before - 99_990
        y = x * 1
        for _ in range(20_000):
            y.mul_(1)  # the same in place
        y[0].mul_(2)
        y.backward()
        assert x.grad.item() == 3
        del y
    finally:
        sys.setrecursionlimit(limit)
