"""What programs ask of a backward pass while it runs, what they leave for its end, and nodes called by hand."""

import warnings

import pytest

from tests.support.alike import alike, error


@alike
def test_numbers_of_passes(torch):
    numbers = []
    x = torch.tensor(1.0, requires_grad=True).clone()
    x.register_hook(lambda g: numbers.append(torch._C._current_graph_task_id()))
    for _ in range(3):
        x.backward(retain_graph=True)
    return [n - numbers[0] for n in numbers], torch._C._current_graph_task_id()


@alike
def test_which_nodes_will_run(torch):
    a, b = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    product = a * b
    beside, out = product.cos(), product * 2
    leaf = product.grad_fn.next_functions[0][0]
    found = []
    ask = torch._C._will_engine_execute_node
    out.register_hook(lambda g: found.append([ask(n) for n in (out.grad_fn, product.grad_fn, beside.grad_fn)]))
    out.sum().backward(retain_graph=True)
    torch.autograd.grad(out.sum(), a, retain_graph=True)
    torch.autograd.grad(out.sum(), product, retain_graph=True)
    torch.autograd.backward(out.sum(), inputs=(product,), retain_graph=True)
    out.register_hook(lambda g: found.append(ask(leaf)))
    torch.autograd.backward(out.sum(), inputs=(a,), retain_graph=True)
    torch.autograd.backward(out.sum(), inputs=(b,), retain_graph=True)
    return found, [
        error(lambda: torch.autograd.grad(out.sum(), a, retain_graph=True)),
        error(lambda: ask(out.grad_fn)), error(lambda: ask(out)), error(lambda: ask(3)),
    ]  # fmt: skip


@alike
def test_order_of_execution(torch):
    found = []

    def note(_):
        found.append([node.name() for node in torch._C._current_graph_task_execution_order()])

    a, b = torch.tensor(1.0, requires_grad=True), torch.tensor(2.0, requires_grad=True)
    c, d = b.sin(), a.cos()
    out = c * d * d.exp()
    out.register_hook(note)
    with torch.autograd.set_multithreading_enabled(False):
        out.backward(retain_graph=True)
        torch.autograd.grad(out, a, retain_graph=True)
        torch.autograd.grad(out, d, retain_graph=True)
    return found, error(out.backward), error(torch._C._current_graph_task_execution_order)


@alike
def test_multithreading_switch(torch):
    found = [torch.autograd.is_multithreading_enabled()]
    with torch.autograd.set_multithreading_enabled(False):
        found.append(torch.autograd.is_multithreading_enabled())
        with torch.autograd.grad_mode.set_multithreading_enabled(True):
            found.append(torch.autograd.is_multithreading_enabled())
    ask = torch.autograd.set_multithreading_enabled(False)(torch.autograd.is_multithreading_enabled)
    after = torch.autograd.is_multithreading_enabled()  # as a decorator, too, it has switched at once
    torch.autograd.set_multithreading_enabled(True)
    return found, ask(), after


@alike
def test_callbacks_at_the_end(torch):
    engine, called = torch.autograd.Variable._execution_engine, []

    def outer(grad):
        engine.queue_callback(lambda: (called.append("first"), engine.queue_callback(lambda: called.append("second"))))
        inner = torch.ones(1, requires_grad=True)
        with torch.enable_grad():
            doubled = inner * 2
        doubled.register_hook(
            lambda g: engine.queue_callback(lambda: called.append(("inner", torch.is_grad_enabled())))
        )
        with torch.enable_grad():
            doubled.backward()
        called.append(engine.is_checkpoint_valid())

    x = torch.ones(1, requires_grad=True)
    y = x * 3
    y.register_hook(outer)
    x.register_hook(lambda g: called.append("leaf"))
    y.backward(retain_graph=True)
    called.append("end")
    torch.autograd.grad(y, x)
    return called, error(lambda: engine.queue_callback(print))


@alike
def test_the_node_of_the_moment(torch):
    names = []
    x = torch.ones(2, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: t, lambda t: (names.append(torch._C._current_autograd_node().name()), t)[1]
    ):
        x.exp().sin().sum().backward()
    return names, torch._C._current_autograd_node()


@alike
def test_nodes_by_hand(torch):
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    node = (x * x[0]).grad_fn
    leaf = node.next_functions[0][0]
    leaf(torch.tensor([5.0, 6.0]))
    return [
        node(torch.ones(2)), x.exp().grad_fn(torch.ones(2)), x.exp().grad_fn(None), x.grad,
        error(lambda: node(1)), error(lambda: node()), error(lambda: node(x, x)),
    ]  # fmt: skip


@alike
def test_no_inputs_and_nodes_as_inputs(torch):
    x = torch.ones(2, requires_grad=True)
    y = x * 2
    ran = []
    y.grad_fn.register_prehook(lambda grads: ran.append("before"))
    y.grad_fn.register_hook(lambda *grads: ran.append("after"))
    y.register_hook(lambda grad: ran.append("tensor"))
    loss = (y * y).sum()
    torch.autograd.grad(loss, y, retain_graph=True)
    ran.append("filled")
    loss.backward(inputs=(y,), retain_graph=True)
    loss.backward(inputs=(torch.autograd.graph.GradientEdge(y.grad_fn, 0),), retain_graph=True)
    return ran, y.grad, x.grad, error(lambda: torch.autograd.grad(loss, []))


@alike
def test_hooks_around_the_first_accumulation_share_its_memory(torch):
    x = torch.ones(3, requires_grad=True)
    leaf = x.view_as(x).grad_fn.next_functions[0][0]
    x.register_hook(lambda g: g - 2)
    leaf.register_prehook(lambda grads: (grads[0] / 5,))
    x.register_post_accumulate_grad_hook(lambda t: [None, t.grad.add_(0.5)][0])

    def after(_, grads):
        x.grad = grads[0] * 10

    leaf.register_hook(after)
    x.sum().backward()
    return x.grad


def told(torch, call):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore", RuntimeWarning)
        warnings.simplefilter("always", UserWarning)
        message = error(call)
    lines = [str(w.message).strip() for w in caught if w.category is UserWarning]
    lines = [line.partition(" (Triggered")[0] for line in lines]
    return message, [line.partition(". Traceback")[0].partition("\n")[0] for line in lines]


@alike
def test_anomaly_mode_tells_of_any_error(torch):
    def modified():
        with torch.autograd.detect_anomaly():
            x = torch.ones(3, requires_grad=True) + 1
            y = x**2
            x += 1
            y.sum().backward()

    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            raise ValueError("no")

    def own():
        y = Fails.apply(torch.ones(1, requires_grad=True))
        with torch.autograd.detect_anomaly():
            y.backward()

    def quiet():
        with torch.autograd.set_detect_anomaly(True):
            Fails.apply(torch.ones(1, requires_grad=True)).backward()

    return [told(torch, call)[1] for call in (modified, own, quiet)]


@alike
def test_anomaly_mode_goes_back_to_the_forward_pass(torch):
    def twice():
        with torch.autograd.set_detect_anomaly(True):
            x = torch.zeros(1, requires_grad=True)
            (first,) = torch.autograd.grad((x.sqrt() * 0).sum() + x.sum(), x, create_graph=True)
            first.backward()

    def nested():
        with torch.autograd.set_detect_anomaly(True, check_nan=False):
            x = torch.ones(1, requires_grad=True)
            (first,) = torch.autograd.grad(x**3, x, create_graph=True)
        first.grad_fn.register_prehook(lambda grads: (grads[0] * torch.nan,))
        with torch.autograd.set_detect_anomaly(True):
            first.backward()

    return [told(torch, call) for call in (twice, nested)]


def test_an_anomaly_whose_warning_is_an_error_is_printed(capsys):
    import tensorgrad as torch

    y = torch.tensor([-1.0], requires_grad=True).abs().sub(2).pow(0.5)
    with torch.autograd.set_detect_anomaly(True), warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeError, match="returned nan values"):
            y.sum().backward()
    assert "Error detected in PowBackward0" in capsys.readouterr().err


@alike
def test_create_graph_in_backward_warns_once(torch):
    before = torch.is_warn_always_enabled()
    try:
        torch.set_warn_always(True)
        x = torch.ones(2, requires_grad=True)
        found = [
            told(torch, lambda: (x * x).sum().backward(create_graph=True)),
            told(torch, lambda: (x * x).backward(torch.ones_like(x), create_graph=True)),
        ]
        quiet = told(torch, lambda: torch.autograd.grad((x * x).sum(), x, create_graph=True))
    finally:
        torch.set_warn_always(before)
    return found, quiet


@alike
def test_callbacks_at_the_end_of_a_pass_are_not_part_of_its_nodes(torch):
    engine, current, seen = torch.autograd.Variable._execution_engine, torch._C._current_autograd_node, []

    def note(tag):
        node = current()
        seen.append((tag, None if node is None else node.name()))

    class Outer(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            engine.queue_callback(lambda: note("outer"))
            with torch.enable_grad():
                leaf = torch.ones(1, requires_grad=True)
                leaf.register_hook(lambda g: engine.queue_callback(lambda: note("inner")))
                leaf.exp().sum().backward()
            note("between")
            return g

    Outer.apply(torch.ones(2, requires_grad=True)).sum().backward()
    return seen


# What only the careful loop handles. Each comes after two ordinary ops and before two others, so the pass starts in the
# plain loop and goes over in the middle: between two nodes, or between the edges of one.
def _no_gradient(torch, y, note):
    class Half(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            return a + b

        @staticmethod
        def backward(ctx, g):
            return g, None

    return Half.apply(y, y * 3)


def _hooked(torch, y, note):
    y.register_hook(lambda g: (note.append(g.tolist()), g * 2)[1])
    return y


def _hooked_node(torch, y, note):
    y.grad_fn.register_hook(lambda inputs, outputs: note.append([g is not None for g in inputs]))
    return y


def _retained(torch, y, note):
    y.retain_grad()
    note.append(y)
    return y


def _hooked_leaf(torch, y, note):
    leaf = torch.full((2,), 3.0, requires_grad=True)
    leaf.register_post_accumulate_grad_hook(lambda leaf: note.append(leaf.grad.tolist()))
    return leaf * y + leaf


def _written(torch, y, note):
    y = y * 1
    y[0] = y[1] * 2
    return y


def _shown(torch, y, note):
    note.append(y.grad_fn.name())
    return y


def _subclass(torch, y, note):
    class Own(torch.Tensor):
        pass

    leaf = torch.full((2,), 3.0).as_subclass(Own).requires_grad_()
    note.append(leaf)
    return y * leaf


UNUSUAL = [_no_gradient, _hooked, _hooked_node, _retained, _hooked_leaf, _written, _shown, _subclass]


@pytest.mark.parametrize("unusual", UNUSUAL)
@pytest.mark.parametrize("swapped", (False, True))
def test_a_pass_goes_on_carefully_from_where_it_is(unusual, swapped):
    def program(torch):
        note: list = []
        x = torch.tensor([1.0, 2.0], requires_grad=True)
        w = torch.tensor([0.5, -1.0], requires_grad=True)
        y = x.sin() * w
        z = unusual(torch, y, note)
        side = w.exp() * x
        loss = ((side * z if swapped else z * side) + w * w * z).sum()
        loss.backward(retain_graph=True)
        first = x.grad.clone(), w.grad.clone()
        loss.backward()
        noted = [n.grad if isinstance(n, torch.Tensor) else n for n in note]
        return first, x.grad, w.grad, noted, bool(error(loss.backward))

    alike(program)()
