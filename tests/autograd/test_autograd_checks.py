"""What is built on backward: gradcheck, the derivatives of whole functions, and checkpoints."""

import sys
import warnings

import pytest

import tensorgrad as torch_
from tests.support.alike import alike, error

# --- gradcheck -----------------------------------------------------------------------------------------------------


def double(torch, *values, complex=False):
    return torch.tensor(values, dtype=torch.complex128 if complex else torch.float64, requires_grad=True)


@alike
def test_gradcheck_accepts_what_is_right(torch):
    check, twice = torch.autograd.gradcheck, torch.autograd.gradgradcheck
    x, y = double(torch, 0.5, -1.5, 2.0), double(torch, 1.0, 2.0, -0.5)
    z, w = double(torch, 1 + 2j, -0.5 - 1j, complex=True), double(torch, 0.5j, 2 - 1j, complex=True)
    results = []
    for function, inputs in (
        (lambda x: x.exp(), x),
        (lambda x, y: x * y + x.sin(), (x, y)),
        (lambda x, y: (x / (y * y), (x * y).sum()), (x, y)),
        (lambda x, y: (x @ y, x.detach() * 2), (x, y)),
        (lambda z: z * z, z),
        (lambda z, w: z * w.conj(), (z, w)),
        (lambda z, w: (z.abs(), (z.exp() * w).imag), (z, w)),
        (lambda x, z: x[:2] * z, (x, z)),
        (lambda x: torch.complex(x, x * x), x),
        (lambda x, n: x * n, (x, 3)),
    ):
        fast = check(function, inputs, fast_mode=True)
        results.append(
            (check(function, inputs), fast, check(function, inputs, check_batched_grad=True), twice(function, inputs))
        )
    empty = torch.zeros(0, dtype=torch.float64, requires_grad=True)
    results.append(check(lambda x, e: x * e.sum(), (x, empty)))
    results.append(twice(lambda x: x**3, x, torch.ones(3, dtype=torch.float64, requires_grad=True)))
    results.append(twice(lambda x: x**3, x, gen_non_contig_grad_outputs=True))
    return results


def wrong(torch, factor=3.0, result=None):
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return result(g, x) if result else g * factor * x

    return Wrong.apply


@alike
def test_gradcheck_refuses_what_is_wrong(torch):
    check = torch.autograd.gradcheck
    x = double(torch, 0.5, -1.5)
    z = double(torch, 1 + 2j, complex=True)
    constant = lambda x: x.detach() * 2
    return (
        check(wrong(torch), x, raise_exception=False),
        check(wrong(torch), x, raise_exception=False, fast_mode=True),
        check(wrong(torch), z, raise_exception=False),
        check(wrong(torch), x, raise_exception=False, atol=100.0),
        error(check, wrong(torch), x).partition("\n")[0],
        error(check, wrong(torch), z).partition("\n")[0],
        error(check, wrong(torch, result=lambda g, x: 2j * g * x.conj()), z).partition("\n")[0],
        error(check, wrong(torch, result=lambda g, x: 2 * x * g + 1e-9), x),
        error(check, constant, x),
        torch.autograd.gradgradcheck(wrong(torch, 2.0), x),
        error(torch.autograd.gradgradcheck, wrong(torch, result=lambda g, x: 2 * x.detach() * g), x).partition("\n")[0],
        torch.autograd.gradgradcheck(wrong(torch, result=lambda g, x: 2 * x.detach() * g), x, raise_exception=False),
    )


@alike
def test_gradcheck_sees_indeterminism(torch):
    calls = []

    def backward(g, x):
        calls.append(1)
        return g * 2 * x + len(calls) * 1e-7

    x = double(torch, 0.5, -1.5)
    text = error(torch.autograd.gradcheck, wrong(torch, result=backward), x)
    return text.partition(" multiple times")[0], torch.autograd.gradcheck(
        wrong(torch, result=backward), x, nondet_tol=1.0, check_undefined_grad=False, raise_exception=False
    )


@alike
def test_gradcheck_arguments(torch):
    check, twice = torch.autograd.gradcheck, torch.autograd.gradgradcheck
    x = double(torch, 0.5, -1.5)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check(lambda x: x * 2, torch.ones(2, requires_grad=True), atol=1e-1, rtol=1e-1, eps=1e-2)
    return (
        [str(w.message) for w in caught][:1],
        error(check, lambda x: x, torch.ones(2)),
        error(check, lambda x: x, torch.ones(1, dtype=torch.float64).expand(3).requires_grad_()),
        error(check, lambda x: x * 2, x, check_backward_ad=False),
        error(check, lambda x: x * 2, x, check_batched_grad=True, check_backward_ad=False, check_forward_ad=True),
        error(check, lambda x: x * 2, x, check_batched_forward_grad=True),
        error(twice, lambda x: x * 2, x, check_rev_over_rev=False),
        error(twice, lambda x: x * 2, x, check_rev_over_rev=False, check_fwd_over_rev=True),
    )


@alike
def test_gradcheck_moves_what_the_function_closes_over(torch):
    model = torch.nn.Linear(3, 2).double()
    x = torch.ones(1, 3, dtype=torch.float64)
    before = [p.detach().clone() for p in model.parameters()]
    passed = torch.autograd.gradcheck(lambda *parameters: model(x), tuple(model.parameters()))
    return passed, all(torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True))


def test_gradcheck_and_missing_gradients():
    class Two(torch_.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, a, b):
            return a * 2 + b * 3  # forgets that one of them may be None

    x = double(torch_, 0.5, -1.5)
    with pytest.raises((torch_.autograd.gradcheck.GradcheckError, TypeError)):
        torch_.autograd.gradcheck(Two.apply, x)


def test_gradcheck_errors_have_a_type():
    from tensorgrad.autograd.gradcheck import GradcheckError

    assert issubclass(GradcheckError, RuntimeError)
    assert torch_.autograd.gradcheck.GradcheckError is GradcheckError
    with pytest.raises(GradcheckError, match="Jacobian mismatch for output 0 with respect to input 0"):
        torch_.autograd.gradcheck(wrong(torch_), double(torch_, 0.5))
    assert callable(torch_.autograd.gradcheck)  # still the function, after the import


def test_gradcheck_of_forward_mode():
    class Wrong(torch_.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

        @staticmethod
        def jvp(ctx, t):
            return t * 3

    check, x = torch_.autograd.gradcheck, double(torch_, 0.5)
    everything = dict(check_forward_ad=True, check_batched_grad=True, check_batched_forward_grad=True)
    assert check(torch_.exp, x, **everything)
    assert check(lambda x: (x.exp(), x.sin() * x), x, **everything)
    assert check(torch_.exp, x, check_forward_ad=True, check_backward_ad=False, fast_mode=True)
    z = torch_.tensor([1 + 2j, -0.5j], dtype=torch_.complex128, requires_grad=True)
    assert check(lambda z: z.abs() * z.conj(), z, **everything)
    assert torch_.autograd.gradgradcheck(lambda x: x.sin() * x, x, check_fwd_over_rev=True)
    assert check(Wrong.apply, x)
    for fast in (False, True):
        with pytest.raises(torch_.autograd.gradcheck.GradcheckError, match="Jacobian computed with forward mode"):
            check(Wrong.apply, x, check_forward_ad=True, fast_mode=fast)


# --- functional ----------------------------------------------------------------------------------------------------


@alike
def test_jacobian(torch):
    F = torch.autograd.functional
    x, y = torch.tensor([1.0, 2.0]), torch.tensor([[3.0, -1.0], [0.5, 4.0]])
    many = lambda x, y: (y @ x, x * x, y.sum())
    return (
        F.jacobian(lambda x: x * x, x),
        F.jacobian(lambda x: (x * x).sum(), x),
        F.jacobian(lambda x: (x * x, x.sum()), x),
        F.jacobian(lambda x, y: y @ x, (x, y)),
        F.jacobian(many, (x, y)),
        F.jacobian(many, (x, y), vectorize=True),
        F.jacobian(many, (x, y), vectorize=True, strategy="forward-mode"),
        F.jacobian(lambda x: x * x, (x,)),
        F.jacobian(lambda x: torch.ones(2), x),
        error(F.jacobian, lambda x: x * x, torch.tensor([1 + 2j])),
        F.jacobian(lambda x: (x * x).abs(), torch.tensor([1 + 2j])),
    )


def test_jacobians_of_nothing():
    F = torch_.autograd.functional
    assert F.jacobian(lambda x: x * x, torch_.zeros(0)).shape == (0, 0)
    assert F.jacobian(lambda x: x.sum(), torch_.zeros(0, 2)).shape == (0, 2)
    assert F.jacobian(lambda x: x[:0], torch_.zeros(3), vectorize=True, strategy="forward-mode").shape == (0, 3)


def test_the_work_of_a_jacobian_grows_with_its_rows():
    """Each row is one backward pass, whose work does not depend on the number of rows (one per output)."""

    def calls(rows):
        point, seen = torch_.ones(1), [0]

        def count(frame, event, argument):
            seen[0] += event == "call"

        sys.setprofile(count)
        try:
            torch_.autograd.functional.jacobian(lambda x: x.expand(rows) * 2, point)
        finally:
            sys.setprofile(None)
        return seen[0]

    calls(40)  # functions that are made at the first call
    assert calls(80) < 2.2 * calls(40)


@alike
def test_jacobian_that_can_be_differentiated(torch):
    F = torch.autograd.functional
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    j = F.jacobian(lambda x: x**3, x, create_graph=True)
    (second,) = torch.autograd.grad(j.sum(), x)
    y = torch.tensor([1.0, 2.0], requires_grad=True)
    with torch.no_grad():
        inside = F.jacobian(lambda x: x * y, x)
    return j, second, F.jacobian(lambda x: x**3, x).requires_grad, x.grad, inside


@alike
def test_hessian(torch):
    F = torch.autograd.functional
    x, y = torch.tensor([1.0, 2.0]), torch.tensor([3.0, -1.0])
    z = torch.tensor([1.0, 2.0], requires_grad=True)
    h = F.hessian(lambda z: (z**4).sum(), z, create_graph=True)
    return (
        F.hessian(lambda x: (x**3).sum(), x),
        F.hessian(lambda x, y: (x * x * y).sum(), (x, y)),
        F.hessian(lambda x: (x**3).sum().reshape(1, 1), (x,)),
        F.hessian(lambda x: x.sum(), x),
        h,
        torch.autograd.grad(h.sum(), z),
        F.hessian(lambda x: (x**3).sum(), x, vectorize=True, outer_jacobian_strategy="forward-mode").detach(),
    )


@alike
def test_products_with_vectors(torch):
    F = torch.autograd.functional
    x, y = torch.tensor([1.0, 2.0]), torch.tensor([3.0, -1.0])
    v, w = torch.tensor([1.0, 10.0]), torch.tensor([-1.0, 0.5])
    scalar = torch.tensor(2.0)
    function = lambda x, y: (x * y, x.sum() * y)
    loss = lambda x, y: (x * x * y).sum()
    return (
        F.vjp(lambda x: x * x, x, v),
        F.vjp(function, (x, y), (v, w)),
        F.vjp(lambda x: (x * x).sum(), x),
        F.jvp(lambda x: x * x, x, v),
        F.jvp(function, (x, y), (v, w)),
        F.jvp(lambda s: s * x, scalar),
        F.jvp(lambda x: (x.sum(), torch.ones(2)), x, v),
        F.hvp(lambda x: (x**3).sum(), x, v),
        F.hvp(loss, (x, y), (v, w)),
        F.vhp(loss, (x, y), (v, w)),
        F.vhp(lambda s: s**3, scalar),
        F.hvp(lambda s: s**3, scalar),
        F.hvp(lambda x: x.sum(), x, v),
        F.vhp(lambda x: x.sum(), x, v),
    )


@alike
def test_products_that_can_be_differentiated(torch):
    F = torch.autograd.functional
    results = []
    for product, function in ((F.vjp, lambda x: x**3), (F.jvp, lambda x: x**3)):
        x, v = torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor([1.0, 10.0], requires_grad=True)
        out, value = product(function, x, v, create_graph=True)
        results.append((out, value, torch.autograd.grad(value.sum() + out.sum(), [x, v])))
    for product in (F.hvp, F.vhp):
        x, v = torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor([1.0, 10.0], requires_grad=True)
        out, value = product(lambda x: (x**4).sum(), x, v, create_graph=True)
        results.append((out, value, torch.autograd.grad(value.sum() + out, [x, v])))
    return results


@alike
def test_strict_mode(torch):
    F = torch.autograd.functional
    x, v = torch.tensor([1.0, 2.0]), torch.tensor([1.0, 10.0])
    y = torch.ones(2, requires_grad=True)
    other = lambda x: y * 2
    none = lambda x: torch.ones(2)
    both = lambda x, z: x * 2
    cases = []
    for product in (F.vjp, F.jvp):
        cases += [error(product, f, x, v, strict=True) for f in (other, none)]
        cases.append(error(product, both, (x, x), v if product is F.vjp else (v, v), strict=True))
        cases.append(error(product, lambda x: x * 2, x, v, strict=True, create_graph=True))
    for product in (F.hvp, F.vhp):
        cases += [error(product, lambda x, f=f: f(x).sum(), x, v, strict=True) for f in (other, none, lambda x: x)]
        cases.append(error(product, lambda x, z: (x * x).sum(), (x, x), (v, v), strict=True))
        cases.append(error(product, lambda x: (x * x).sum(), x, v, strict=True, create_graph=True))
    for matrix in (F.jacobian, F.hessian):
        cases += [error(matrix, lambda x, f=f: f(x).sum(), x, strict=True) for f in (other, none, lambda x: x)]
        cases.append(error(matrix, lambda x: x.sum() * 2, x, strict=True, create_graph=True))
    cases.append(error(F.jacobian, lambda x: x, x, strict=True, vectorize=True))
    cases.append(error(F.jacobian, lambda x: x, x, strict=True, vectorize=True, strategy="forward-mode"))
    return cases


@alike
def test_functional_errors(torch):
    F = torch.autograd.functional
    x, v = torch.tensor([1.0, 2.0]), torch.ones(3)
    square = lambda x: x * x
    return (
        error(F.vjp, square, x),
        error(F.vjp, square, x, v),
        error(F.vjp, lambda x: (x, x), x, (v, v)),
        error(F.vjp, lambda x: (x, x), x, (v,)),
        error(F.vjp, square, x, (x, x)),
        error(F.vjp, square, [x]),
        error(F.vjp, square, (x, 3)),
        error(F.vjp, lambda x: 3, x),
        error(F.vjp, lambda x: (x, 3), x),
        error(F.vjp, square, x, 3),
        error(F.jvp, square, x),
        error(F.jvp, square, x, v),
        error(F.hvp, square, x, x),
        error(F.vhp, square, x, x),
        error(F.hvp, lambda x: (x.sum(),), x, x),
        error(F.hvp, lambda x: x.sum(), x),
        error(F.hessian, square, x),
        error(F.hessian, lambda x: (x.sum(),), x),
        error(F.hessian, lambda x: x.sum(), x, outer_jacobian_strategy="sideways"),
        error(F.jacobian, square, x, strategy="sideways"),
        error(F.jacobian, square, x, strategy="forward-mode"),
        error(F.jacobian, square, x, strategy="forward-mode", vectorize=True, create_graph=True),
        error(F.jacobian, square, 3),
    )


# --- checkpoint ----------------------------------------------------------------------------------------------------


def network(torch, dropout=False):
    torch.manual_seed(3)
    layers = [torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)]
    if dropout:
        layers.insert(2, torch.nn.Dropout(0.5))
    return torch.nn.Sequential(*layers)


@alike
def test_checkpoints_change_nothing(torch):
    checkpoint = torch.utils.checkpoint.checkpoint
    results = []
    for reentrant in (None, False, True):
        for dropout in (False, True):
            model = network(torch, dropout)
            x = torch.linspace(-1, 1, 12).reshape(3, 4).requires_grad_()
            torch.manual_seed(7)
            y = model(x) if reentrant is None else checkpoint(model, x, use_reentrant=reentrant)
            after = torch.rand(1)
            (y * y).sum().backward()
            results.append((y.detach(), after, torch.rand(1), x.grad, [p.grad for p in model.parameters()]))
    for k in (2, 4):
        for first, other in zip(results[:2], results[k : k + 2], strict=True):
            assert all(torch.allclose(a, b) for a, b in zip(first[4], other[4], strict=True))
    return results


@alike
def test_checkpoints_run_the_function_again(torch):
    calls = []

    def function(x):
        calls.append(torch.is_grad_enabled())
        return (x * x).exp()

    counts = []
    for reentrant in (False, True):
        x = torch.ones(2, requires_grad=True)
        y = torch.utils.checkpoint.checkpoint(function, x, use_reentrant=reentrant)
        before = len(calls)
        y.sum().backward()
        counts.append((before, len(calls), x.grad))
        with torch.no_grad():
            torch.utils.checkpoint.checkpoint(function, x, use_reentrant=reentrant)
        counts.append(len(calls))
    return counts, calls


@alike
def test_nested_checkpoints(torch):
    checkpoint = torch.utils.checkpoint.checkpoint
    calls = []

    def inner(x):
        calls.append("inner")
        return x.exp() * x

    def outer(x):
        calls.append("outer")
        return checkpoint(inner, x * 2, use_reentrant=False).sin()

    x = torch.tensor([0.1, 0.2], requires_grad=True)
    y = checkpoint(outer, x, use_reentrant=False)
    y.sum().backward()
    z = torch.tensor([0.1, 0.2], requires_grad=True)
    (z * 2).exp().mul(z * 2).sin().sum().backward()
    assert torch.allclose(x.grad, z.grad)
    return x.grad, sorted(set(calls)), calls.count("outer")


@alike
def test_checkpoints_and_higher_derivatives(torch):
    checkpoint = torch.utils.checkpoint.checkpoint
    x = torch.tensor([0.5, 1.5], requires_grad=True)
    y = checkpoint(lambda x: (x * x * x).exp(), x, use_reentrant=False)
    (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x, create_graph=True)
    return first.detach(), second.detach()


@alike
def test_checkpoints_can_be_used_twice(torch):
    x = torch.tensor([0.5, 1.5], requires_grad=True)
    y = torch.utils.checkpoint.checkpoint(lambda x: x.exp() * x, x, use_reentrant=False)
    y.sum().backward(retain_graph=True)
    y.sum().backward()
    return x.grad


@alike
def test_checkpoint_arguments(torch):
    checkpoint = torch.utils.checkpoint.checkpoint
    x = torch.ones(2, requires_grad=True)
    w = torch.full((2,), 3.0, requires_grad=True)
    log = []

    class Note:
        def __init__(self, text):
            self.text = text

        def __enter__(self):
            log.append(self.text)

        def __exit__(self, *exception):
            pass

    def function(x, pair, *, scale=1, extra=None):
        return x * pair["w"] * scale + (0 if extra is None else extra.exp()), "text"

    y, text = checkpoint(
        function, x, {"w": w}, scale=2, extra=w, use_reentrant=False, context_fn=lambda: (Note("first"), Note("second"))
    )
    y.sum().backward()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        checkpoint(lambda x: x * 2, torch.ones(2, requires_grad=True))
        none = checkpoint(lambda x: x * 2, torch.ones(2), use_reentrant=True)
    return (
        x.grad, w.grad, text, log,
        len(caught), "use_reentrant parameter should be passed explicitly" in str(caught[0].message),
        str(caught[1].message),
        none.requires_grad,
        error(checkpoint, lambda x: x, x, use_reentrant=True, scale=2),
        error(checkpoint, lambda x: x, x, use_reentrant=True, context_fn=lambda: None),
        error(checkpoint, lambda x: x, x, use_reentrant=False, determinism_check="some"),
    )  # fmt: skip


@alike
def test_reentrant_checkpoints_refuse_grad(torch):
    x = torch.ones(2, requires_grad=True)

    def make():
        return torch.utils.checkpoint.checkpoint(lambda x: x.exp(), x, use_reentrant=True).sum()

    constant = torch.utils.checkpoint.checkpoint(lambda x: x.detach(), x, use_reentrant=True).sum()
    return error(torch.autograd.grad, make(), x), error(make().backward, inputs=[x]), error(constant.backward)


@alike
def test_checkpoints_notice_differences(torch):
    checkpoint = torch.utils.checkpoint.checkpoint
    results = []
    for determinism in ("default", "none"):
        count = []

        def shrinks(x, count=count):
            count.append(1)
            return x.exp() if len(count) == 1 else x * 2

        def changes(x, count=count):
            count.append(1)
            return x.exp() if len(count) == 1 else x.double().exp().float()

        for function in (shrinks, changes):
            count.clear()
            x = torch.ones(2, requires_grad=True)
            y = checkpoint(function, x, use_reentrant=False, determinism_check=determinism)
            text = error(y.sum().backward)
            results.append(text.partition("\n")[0] if determinism == "default" else None)
    count = []

    def grows(x):
        count.append(1)
        return x.exp() if len(count) == 1 else x.exp().exp()

    x = torch.ones(2, requires_grad=True)
    y = checkpoint(grows, x, use_reentrant=False, early_stop=False)
    results.append(error(y.sum().backward).partition("\n")[0])
    return results


@alike
def test_inputs_of_checkpoints_must_stay(torch):
    w = torch.ones(2, requires_grad=True) * 2
    y = torch.utils.checkpoint.checkpoint(lambda w: w * w, w, use_reentrant=False)
    w.add_(1)
    return "has been modified by an inplace operation" in error(y.sum().backward)


@alike
def test_early_stop(torch):
    steps = []

    def function(x):
        y = x.exp()
        steps.append("middle")
        z = y * 2
        steps.append("end")
        return z

    for stop in (True, False):
        x = torch.ones(2, requires_grad=True)
        with torch.utils.checkpoint.set_checkpoint_early_stop(stop):
            y = torch.utils.checkpoint.checkpoint(function, x, use_reentrant=False)
        steps.append("backward")
        y.sum().backward()
    return steps


def test_debug_lists_the_ops():
    count = []

    def changes(x):
        count.append(1)
        return x.exp() if len(count) == 1 else (x * 2).double().exp().float()

    x = torch_.ones(2, requires_grad=True)
    y = torch_.utils.checkpoint.checkpoint(changes, x, use_reentrant=False, debug=True, early_stop=False)
    with pytest.raises(torch_.utils.checkpoint.CheckpointError) as caught:
        y.sum().backward()
    first, second = str(caught.value).split("during recomputation")
    assert "exp([2])" in first and "mul" not in first and "mul" in second


@alike
def test_checkpoint_sequential(torch):
    results = []
    for reentrant in (False, True):
        for segments in (1, 2, 3):
            model = network(torch)
            x = torch.linspace(-1, 1, 12).reshape(3, 4).requires_grad_()
            y = torch.utils.checkpoint.checkpoint_sequential(model, segments, x, use_reentrant=reentrant)
            y.sum().backward()
            results.append((y.detach(), x.grad, [p.grad for p in model.parameters()]))
    x = torch.ones(2, requires_grad=True)
    functions = [lambda x: x * 2, lambda x: x.exp(), lambda x: x.sum()]
    torch.utils.checkpoint.checkpoint_sequential(functions, 2, x, use_reentrant=False).backward()
    return (
        results,
        x.grad,
        error(torch.utils.checkpoint.checkpoint_sequential, functions, 2, x, use_reentrant=False, k=1),
    )


@alike
def test_backward_inside_a_checkpoint(torch):
    def function(x):
        y = x * x
        (inner,) = torch.autograd.grad((y * y).sum(), x, create_graph=True)
        return inner * y

    x = torch.tensor([0.5, 1.5], requires_grad=True)
    torch.utils.checkpoint.checkpoint(function, x, use_reentrant=False).sum().backward()
    return x.grad


@alike
def test_writes_inside_a_checkpoint(torch):
    def function(x, w):
        y = x * 2
        y.mul_(w)
        y[0].mul_(0.5)
        y.relu_()
        return y * w

    x = torch.tensor([[0.5, 1.5], [-1.0, 2.0]], requires_grad=True)
    w = torch.tensor([2.0, 3.0], requires_grad=True)
    torch.utils.checkpoint.checkpoint(function, x, w, use_reentrant=False).sum().backward()
    plain = [t.detach().clone().requires_grad_() for t in (x, w)]
    function(*plain).sum().backward()
    assert torch.allclose(x.grad, plain[0].grad) and torch.allclose(w.grad, plain[1].grad)
    return x.grad, w.grad
