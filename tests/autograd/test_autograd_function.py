"""Functions whose derivative the user wrote."""

import pytest

import tensorgrad as torch_
from tests.support.alike import alike, as_torch_says, error


def square_of(torch):
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * 2 * x

    return Square


@alike
def test_forward_and_backward(torch):
    Square = square_of(torch)
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = Square.apply(x)
    (y * y).sum().backward()
    with torch.no_grad():
        quiet = Square.apply(x)
    return y, y.grad_fn.name(), x.grad, quiet, Square.apply(torch.ones(2)), y.is_leaf


@alike
def test_double_backward(torch):
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = square_of(torch).apply(x) * x
    (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x, create_graph=True)
    return first, second, torch.autograd.grad(second.sum(), x)


@alike
def test_double_backward_through_a_saved_output(torch):
    class Exp(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x.exp()
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, g):
            (y,) = ctx.saved_tensors
            return g * y

    x = torch.tensor([0.5, 1.0], requires_grad=True)
    (first,) = torch.autograd.grad(Exp.apply(x * 2).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    return first, second


@alike
def test_setup_context_and_other_arguments(torch):
    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(x, factor, name, options):
            return x * factor, name

        @staticmethod
        def setup_context(ctx, inputs, output):
            _, factor, name, options = inputs
            ctx.factor, ctx.told = factor, (name, options["k"], len(output))

        @staticmethod
        def backward(ctx, g, other):
            return g * ctx.factor, None, None, None

    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y, name = Scale.apply(x, 3.0, "n", {"k": 1})
    told = y.grad_fn.told
    y.sum().backward()
    return y, name, told, x.grad


@alike
def test_needs_input_grad(torch):
    seen = []

    class Mix(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a, number, b, c):
            seen.append(ctx.needs_input_grad)
            ctx.save_for_backward(a, b)
            return a * b + number

        @staticmethod
        def backward(ctx, g):
            a, b = ctx.saved_tensors
            seen.append(ctx.needs_input_grad)
            return (
                (g * b if ctx.needs_input_grad[0] else None),
                None,
                (g * a if ctx.needs_input_grad[2] else None),
                None,
            )

    a, b = torch.ones(2, requires_grad=True), torch.full((2,), 2.0)
    Mix.apply(a, 1, b, None).sum().backward()
    return seen, a.grad


@alike
def test_several_outputs_and_missing_gradients(torch):
    seen = []

    class Two(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, materialize):
            ctx.set_materialize_grads(materialize)
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, a, b):
            seen.append([None if g is None else g.clone() for g in (a, b)])
            return sum(g * k for g, k in ((a, 2), (b, 3)) if g is not None), None

    x = torch.ones(2, requires_grad=True)
    for materialize in (True, False):
        a, b = Two.apply(x, materialize)
        b.sum().backward()
    a, b = Two.apply(x, True)
    (a * b).sum().backward()
    return seen, x.grad, a.output_nr, b.output_nr, a.grad_fn is b.grad_fn


@alike
def test_no_gradient_at_all(torch):
    """A custom function runs all the same, with zeros or None; other ops do not; hooks hear of it."""
    seen = []

    class Stop(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            return None

    def look(materialized):
        class Look(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.set_materialize_grads(materialized)
                return x * 2

            @staticmethod
            def backward(ctx, g):
                seen.append(["backward", g])
                return g

        return Look.apply

    def tell(name):
        return lambda *given: seen.append([name, str(given)])

    grads = []
    for first, second in ((look(True), torch.exp), (look(False), torch.exp), (torch.exp, look(True))):
        for more in (False, True):
            x = torch.ones(2, requires_grad=True)
            x.register_hook(tell("leaf"))
            x.register_post_accumulate_grad_hook(tell("accumulated"))
            middle = first(x)
            middle.register_hook(tell("tensor"))
            middle.grad_fn.register_prehook(tell("before"))
            middle.grad_fn.register_hook(tell("after"))
            result = Stop.apply(second(middle)).sum()
            (result + 3 * x.sum() if more else result).backward()
            grads.append(x.grad)
    x = torch.ones(2, requires_grad=True)
    x.register_hook(torch.ones_like)
    text = error(Stop.apply(x).sum().backward)
    x = torch.ones(2, requires_grad=True)
    stopped = Stop.apply(look(False)(x)).sum()
    return [
        grads, str(seen).replace("tensorgrad", "torch"), text.partition(":")[0],
        torch.autograd.grad(stopped, x, allow_unused=True, retain_graph=True)[0],
        error(torch.autograd.grad, stopped, x, retain_graph=True),
        torch.autograd.grad(stopped, x, materialize_grads=True)[0],
    ]  # fmt: skip


@alike
def test_what_backward_returns(torch):
    def outcome(result):
        class Answer(torch.autograd.Function):
            @staticmethod
            def forward(ctx, *inputs):
                return sum(x * 1 for x in inputs)

            @staticmethod
            def backward(ctx, g):
                return result(g)

        x, y = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
        text = error(Answer.apply(x, y).sum().backward)
        return [text.partition(" as gradient")[0], *((x.grad, y.grad) if text == "nothing" else ())]

    return [
        outcome(lambda g: None), outcome(lambda g: (None, None)), outcome(lambda g: (None,) * 4),
        outcome(lambda g: (g, None)), outcome(lambda g: (None, g)), outcome(lambda g: [g, g]),
        outcome(lambda g: (g, g, g)), outcome(lambda g: (g, 1.0)), outcome(lambda g: (g, "g")),
        outcome(lambda g: (g, torch.ones(3))), outcome(lambda g: (g, torch.ones(2, device="meta"))),
        outcome(lambda g: (torch.ones(2, dtype=torch.float64), torch.ones(3, 2))),
    ]  # fmt: skip


@alike
def test_non_differentiable_outputs(torch):
    class Sorted(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            indices = torch.tensor([1, 0])
            mask = x > 1
            twice = x * 2
            ctx.mark_non_differentiable(indices, mask, twice)
            return x[indices], indices, mask, twice

        @staticmethod
        def backward(ctx, g, *others):
            return g[torch.tensor([1, 0])]

    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y, indices, mask, twice = Sorted.apply(x)
    (y * torch.tensor([1.0, 10.0])).sum().backward()
    return y, indices, mask, twice, x.grad


@alike
def test_integer_outputs_need_no_mark(torch):
    class Count(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2, torch.tensor([7])

        @staticmethod
        def backward(ctx, g, h):
            return g * 2

    x = torch.ones(2, requires_grad=True)
    y, count = Count.apply(x)
    y.sum().backward()
    return count, x.grad


@alike
def test_dirty_inputs(torch):
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            x.mul_(2)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx, g):
            return g * 2

    x = torch.ones(2, requires_grad=True)
    y = x * 3
    z = Double.apply(y)
    same = z is y, y.grad_fn.name(), y._version
    (y * y).sum().backward()
    base = x * 1
    Double.apply(base[0])
    first = x.grad.clone()
    x.grad = None
    base.sum().backward()
    return same, first, x.grad, base, base.grad_fn.name(), error(Double.apply, x)


@alike
def test_dirty_but_not_returned(torch):
    class Forgets(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g

    return error(Forgets.apply, torch.ones(1, requires_grad=True) * 2)


@alike
def test_an_input_returned_as_it_is(torch):
    class Pass(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, g):
            return g * 5

    x = torch.ones(2, requires_grad=True)
    y = Pass.apply(x)
    y.sum().backward()
    return y is x, y.data_ptr() == x.data_ptr(), x.grad, y.is_leaf, error(y.mul_, 2), error(y[0].mul_, 2)


@alike
def test_a_view_returned(torch):
    class First(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x[0]

        @staticmethod
        def backward(ctx, g):
            return torch.stack([g, g * 0])

    x = torch.ones(2, 3, requires_grad=True)
    y = First.apply(x)
    y.sum().backward()
    return y, x.grad, y.data_ptr() == x.data_ptr(), error(y.mul_, 2)


@alike
def test_wrong_backwards(torch):
    def function(result):
        class Wrong(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, y):
                return x * 2

            @staticmethod
            def backward(ctx, g):
                return result(g)

        return Wrong

    def run(result, second=None):
        x = torch.ones(2, requires_grad=True)
        return error(function(result).apply(x, second).sum().backward)

    extra = function(lambda g: (g, None, None, None))
    x = torch.ones(2, requires_grad=True)
    extra.apply(x, None).sum().backward()
    return (
        run(lambda g: g),
        run(lambda g: (g, g, g)),
        run(lambda g: (g, g)),
        run(lambda g: (3, None)).partition(" as gradient")[0],
        run(lambda g: (g[:1][:, None].expand(1, 5), None)).partition(" - got")[0],
        x.grad,
    )


@alike
def test_gradients_are_fitted_to_the_input(torch):
    class Loose(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.sum()

        @staticmethod
        def backward(ctx, g):
            return torch.ones(4, 2, 3, dtype=torch.float64)

    x = torch.ones(2, 1, requires_grad=True)
    Loose.apply(x).backward()
    return x.grad


@alike
def test_missing_methods(torch):
    class Nothing(torch.autograd.Function):
        pass

    class OnlyForward(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

    x = torch.ones(2, requires_grad=True)
    return error(Nothing.apply, x), error(OnlyForward.apply(x).sum().backward), error(torch.autograd.Function.apply, x)


@alike
def test_saving_wrong_things(torch):
    class Saves(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, what):
            ctx.save_for_backward(what)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            assert ctx.saved_tensors == (None,)
            return g, None

    x = torch.ones(2, requires_grad=True)
    Saves.apply(x, None).sum().backward()
    return x.grad, error(Saves.apply, x, 3)


@alike
def test_saved_tensors_are_checked(torch):
    Square = square_of(torch)
    x = torch.ones(2, requires_grad=True)
    w = x * 2
    y = Square.apply(w)
    w.add_(1)
    z = Square.apply(x * 3)
    z.sum().backward()
    return as_torch_says(error(y.sum().backward)), error(z.sum().backward), error(lambda: z.grad_fn.saved_tensors)


@alike
def test_once_differentiable(torch):
    class Once(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * 2 * x

    x = torch.tensor([1.0, 2.0], requires_grad=True)
    Once.apply(x).sum().backward()
    (first,) = torch.autograd.grad((Once.apply(x) * x).sum(), x, create_graph=True)
    return x.grad, first.detach(), error(first.sum().backward)


@alike
def test_backward_under_modes(torch):
    seen = []

    class Modes(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            seen.append(torch.is_grad_enabled())
            return x * 2

        @staticmethod
        def backward(ctx, g):
            seen.append(torch.is_grad_enabled())
            return g * 2

    x = torch.ones(1, requires_grad=True)
    Modes.apply(x).backward()
    torch.autograd.grad(Modes.apply(x), x, create_graph=True)
    return seen


@alike
def test_a_graph_inside_backward(torch):
    class Inner(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return (x**3).detach()

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            with torch.enable_grad():
                y = x.detach().requires_grad_()
                (inner,) = torch.autograd.grad((y**3).sum(), y)
            return g * inner

    x = torch.tensor([1.0, 2.0], requires_grad=True)
    (Inner.apply(x) * 2).sum().backward()
    return x.grad


@alike
def test_ctx_holds_what_it_is_given(torch):
    class Keeps(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, n):
            ctx.n, ctx.text = n, "mine"
            return x * n

        @staticmethod
        def backward(ctx, g):
            return g * ctx.n * len(ctx.text), None

    x = torch.ones(2, requires_grad=True)
    y = Keeps.apply(x, 3)
    y.sum().backward()
    return x.grad, y.grad_fn.text


@alike
def test_vjp_is_backward(torch):
    class Named(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def vjp(ctx, g):
            return g * 2

    x = torch.ones(2, requires_grad=True)
    Named.apply(x).sum().backward()
    return x.grad


@alike
def test_hooks_on_a_custom_node(torch):
    seen = []
    x = torch.ones(2, requires_grad=True)
    y = square_of(torch).apply(x)
    y.grad_fn.register_hook(lambda i, o: seen.append((len(i), len(o))))
    y.grad_fn.register_prehook(lambda g: (g[0] * 3,))
    y.sum().backward()
    return seen, x.grad


@alike
def test_tuples_come_back_as_tuples(torch):
    class Many(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, kind):
            return kind([x * 2, None, 3])

        @staticmethod
        def backward(ctx, g, *others):
            return g * 2, None

    x = torch.ones(1, requires_grad=True)
    results = [Many.apply(x, kind) for kind in (tuple, list)]  # a list is one value that is not a tensor
    results[0][0].sum().backward()
    return [type(r).__name__ for r in results], results, x.grad


def test_functions_are_not_instantiated():
    with pytest.raises(RuntimeError):
        torch_.autograd.Function()()


@alike
def test_complex_functions(torch):
    class Conjugate(torch.autograd.Function):
        @staticmethod
        def forward(ctx, z):
            return z.conj() * 2

        @staticmethod
        def backward(ctx, g):
            return g.conj() * 2

    z = torch.tensor([1 + 2j, 3 - 1j], requires_grad=True)
    (Conjugate.apply(z).abs() ** 2).sum().backward()
    return z.grad


@alike
def test_backward_may_differentiate_on_its_own(torch):
    """What was saved is in its place in the graph, though backward itself is not recorded."""
    seen = []

    class Linear(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return x * w

        @staticmethod
        def backward(ctx, g):
            x, w = ctx.saved_tensors
            seen.append((x.requires_grad, x.is_leaf, w.requires_grad, w.is_leaf, torch.is_grad_enabled()))
            with torch.enable_grad():
                return torch.autograd.grad(x.detach().requires_grad_(False) * w, w, g)[0] * 0, (x * w).sum() * g

    x, w = torch.tensor([2.0, 3.0]), torch.nn.Parameter(torch.ones(2))
    Linear.apply(x, w).sum().backward()
    Linear.apply(x, w * 2).sum().backward()
    return seen, w.grad
