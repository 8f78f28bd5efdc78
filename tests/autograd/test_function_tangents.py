"""Custom functions in forward mode, as in torch: what `jvp` is given and may read, what it must return for results that
were written in place, are views or have no derivative, and when a tangent is gone."""

import pytest

from tests.support.alike import alike, error


def function(torch, forward, jvp=None, backward=lambda ctx, *g: g[0], setup=None):
    parts = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    parts |= {"jvp": staticmethod(jvp)} if jvp else {}
    parts |= {"setup_context": staticmethod(setup)} if setup else {}
    return type("Fn", (torch.autograd.Function,), parts)


def parts(torch, tensors):
    """The values and tangents of tensors."""
    found = []
    for tensor in tensors:
        if isinstance(tensor, torch.Tensor):
            value, tangent = torch.autograd.forward_ad.unpack_dual(tensor)
            found.append((value.tolist(), tangent if tangent is None else tangent.tolist()))
        else:
            found.append(tensor)
    return found


def pushed(torch, made, *args, moves=(True,), before=lambda dual: dual, recorded=False):
    """Calls a function with dual numbers: the parts of its results and, afterwards, of its arguments."""
    ad = torch.autograd.forward_ad
    with ad.dual_level():
        given = []
        for value, moving in zip(args, (*moves, *[False] * len(args)), strict=False):
            if moving:
                value = before(ad.make_dual(value.clone().requires_grad_(recorded), torch.full_like(value, 2.0)))
            given.append(value)
        results = made.apply(*given)
        results = results if isinstance(results, tuple) else (results,)
        return parts(torch, results), parts(torch, given)


def values(torch):
    return torch.tensor([1.0, -2.0, 3.0])


def agrees(scenario):
    """Runs a scenario under both libraries: its result, or its error."""

    def observed(torch):
        found = []
        found.append(error(lambda: found.append(scenario(torch))))
        return found

    observed.__name__ = "test_observed"
    alike(observed)()


# --- what jvp may read -----------------------------------------------------------------------------------------------


def saves(which):
    def forward(ctx, x):
        for name, saved in which(x):
            getattr(ctx, name)(*saved)
        return x * x

    return forward


SAVED = {
    "for backward": lambda x: [("save_for_backward", (x,))],
    "for forward": lambda x: [("save_for_forward", (x,))],
    "other for both": lambda x: [("save_for_backward", (x * 5,)), ("save_for_forward", (x,))],
    "in the other order": lambda x: [("save_for_forward", (x,)), ("save_for_backward", (x * 5,))],
    "twice": lambda x: [("save_for_forward", (x,)), ("save_for_forward", (x * 2, x))],
    "none": lambda x: [("save_for_forward", (None, x))],
    "a number": lambda x: [("save_for_forward", (x, 3))],
    "a list": lambda x: [("save_for_forward", ([x],))],
    "nothing": lambda x: [],
}


@pytest.mark.parametrize("saved", SAVED)
def test_what_jvp_finds_in_its_context(saved):
    def scenario(torch):
        contexts = []

        def jvp(ctx, t):
            contexts.append(ctx)
            seen = [s if s is None else s.tolist() for s in ctx.saved_tensors]
            tangents = [torch.autograd.forward_ad.unpack_dual(s).tangent for s in ctx.saved_tensors if s is not None]
            raise KeyError(f"{seen} {tangents}")

        made = function(torch, saves(SAVED[saved]), jvp)
        plain = error(made.apply, values(torch))
        raised = error(pushed, torch, made, values(torch))
        return plain, raised

    agrees(scenario)


@alike
def test_what_was_saved_for_jvp_is_gone_afterwards(torch):
    contexts = []

    def forward(ctx, x):
        contexts.append(ctx)
        ctx.save_for_forward(x)
        return x * x

    made = function(torch, forward, lambda ctx, t: ctx.saved_tensors[0] * 2 * t)
    return pushed(torch, made, values(torch)), [len(ctx.saved_tensors) for ctx in contexts]


@alike
def test_forward_and_jvp_see_values_without_tangents(torch):
    seen, ad = [], torch.autograd.forward_ad

    def forward(ctx, x):
        ctx.x = x
        y = x * 2
        seen.extend(ad.unpack_dual(t).tangent for t in (x, y))
        return y

    def jvp(ctx, t):
        seen.append(ad.unpack_dual(ctx.x).tangent)
        return ctx.x * t

    return pushed(torch, function(torch, forward, jvp), values(torch)), seen


@alike
def test_tangents_that_are_missing(torch):
    """They are zeros for real and complex tensors (unless that is switched off), None for all other arguments."""
    found = []
    for materialize in (True, False):

        def forward(ctx, x, *others, materialize=materialize):
            ctx.set_materialize_grads(materialize)
            return x * 1

        def jvp(ctx, t, *others):
            found.append([o if o is None else o.tolist() for o in others])
            return t * 3

        others = values(torch), torch.tensor([1, 2]), torch.tensor([True]), torch.tensor([1j]), 3, "a"
        found.append(pushed(torch, function(torch, forward, jvp), values(torch), *others[:3], *others[4:]))
    return found


# --- what jvp returns ------------------------------------------------------------------------------------------------

TWO = lambda ctx, x: (x * 2, x * 3)
RETURNED = {
    "too many": (lambda ctx, x: x * 2, lambda t: (t, t)),
    "too few": (TWO, lambda t: t),
    "a list": (TWO, lambda t: [t * 2, t * 3]),
    "a list of one": (lambda ctx, x: x * 2, lambda t: [t * 2]),
    "another shape": (lambda ctx, x: x * 2, lambda t: t.sum()),
    "another dtype": (lambda ctx, x: x * 2, lambda t: t.double()),
    "a number": (lambda ctx, x: x * 2, lambda t: 3.0),
    "text": (TWO, lambda t: (t, "a")),
    "of integers, none": (lambda ctx, x: (x * 2, x.argsort()), lambda t: (t * 2, None)),
    "of integers, one": (lambda ctx, x: (x * 2, x.argsort()), lambda t: (t * 2, t)),
    "of a mask": (lambda ctx, x: (x > 0, x * 2), lambda t: (t, t)),
    "of a number, none": (lambda ctx, x: (x * 2, 5), lambda t: (t * 2, None)),
}


@pytest.mark.parametrize("returned", RETURNED)
def test_what_jvp_returns(returned):
    forward, jvp = RETURNED[returned]
    agrees(lambda torch: pushed(torch, function(torch, forward, lambda ctx, t: jvp(t)), values(torch)))


@pytest.mark.parametrize("given", [True, False])
def test_results_without_derivative_have_no_tangent(given):
    def scenario(torch):
        def forward(ctx, x):
            found = x * 2, x * 3
            ctx.mark_non_differentiable(found[1])
            return found

        return pushed(torch, function(torch, forward, lambda ctx, t: (t * 2, t if given else None)), values(torch))

    agrees(scenario)


WRITES = {
    "in place": lambda t, u: t.mul_(2),
    "by copy_": lambda t, u: t.copy_(t * 2),
    "new": lambda t, u: t * 2,
    "the same": lambda t, u: t,
    "in place, as a view": lambda t, u: t.mul_(2).view_as(t),
    "in place, as a copy": lambda t, u: t.mul_(2).clone(),
    "of the other": lambda t, u: t.add_(u),
    "the other": lambda t, u: u,
}
MOVES = {"the written one": (True, False), "both": (True, True), "the other one": (False, True)}


@pytest.mark.parametrize("computed", [True, False], ids=["computed", "made"])
@pytest.mark.parametrize("moves", MOVES)
@pytest.mark.parametrize("writes", WRITES)
def test_written_arguments(writes, moves, computed):
    def scenario(torch):
        def forward(ctx, x, y):
            ctx.mark_dirty(x)
            return x.mul_(y)

        made = function(torch, forward, lambda ctx, t, u: WRITES[writes](t, u))
        before = (lambda dual: dual * 1) if computed else (lambda dual: dual)
        return pushed(torch, made, values(torch), values(torch), moves=MOVES[moves], before=before)

    agrees(scenario)


@alike
def test_written_views_and_bases(torch):
    """The tangents of a written view's base, and of a written base's views, change with it."""
    ad, found = torch.autograd.forward_ad, []

    def forward(ctx, x, y):
        ctx.mark_dirty(x)
        return x.mul_(y)

    made = function(torch, forward, lambda ctx, t, u: t.add_(u))
    for moving in (True, False):
        for of_view in (True, False):
            with ad.dual_level():
                base = ad.make_dual(values(torch), torch.ones(3)) * 1 if moving else values(torch)
                view = base[1:]
                written = view if of_view else base
                factor = ad.make_dual(written.new_full(written.shape, 3.0), torch.ones_like(written))
                found.append(parts(torch, (made.apply(written, factor), view, base)))
    return found


SHOWN = {
    "part": (lambda x: x[1:], lambda t: t[1:]),
    "view_as": (lambda x: x.view_as(x), lambda t: t.view_as(t)),
    "itself": (lambda x: x, lambda t: t.view_as(t)),
}
ANSWERS = {
    "a view": lambda t, show: show(t),
    "a copy": lambda t, show: show(t).clone(),
    "a view of a copy": lambda t, show: show(t.clone()),
}


@pytest.mark.parametrize("level", ["dual", "func"])
@pytest.mark.parametrize("computed", ["made", "computed", "a view"])
@pytest.mark.parametrize("answers", ANSWERS)
@pytest.mark.parametrize("shown", SHOWN)
def test_functions_that_return_views(shown, answers, computed, level):
    of_values, of_tangents = SHOWN[shown]

    def jvp(ctx, t):
        return ANSWERS[answers](t, of_tangents)

    def scenario(torch):
        if level == "func":
            made = function(torch, of_values, jvp, setup=lambda ctx, inputs, output: None)
            return torch.func.jvp(lambda x: made.apply(x * 1), (values(torch),), (torch.ones(3),))
        made = function(torch, lambda ctx, x: of_values(x), jvp)
        before = {"made": lambda x: x, "computed": lambda x: x * 1, "a view": lambda x: (x * 1)[:]}[computed]
        return pushed(torch, made, values(torch), before=before)

    agrees(scenario)


@alike
def test_views_share_their_tangents(torch):
    ad = torch.autograd.forward_ad
    made = function(torch, lambda ctx, x: x.view_as(x), lambda ctx, t: t.view_as(t))
    with ad.dual_level():
        x = ad.make_dual(values(torch), torch.ones(3)) * 1
        y = made.apply(x)
        y.mul_(3)
        return parts(torch, (x, y))


@alike
def test_a_view_of_what_has_no_tangent(torch):
    ad = torch.autograd.forward_ad

    def forward(ctx, x, y):
        return x[1:]

    made = function(torch, forward, lambda ctx, t, u: u[1:] * 2)
    with ad.dual_level():
        x, y = values(torch), ad.make_dual(values(torch), torch.ones(3))
        found = made.apply(x, y)
        return parts(torch, (found, x, y))


# --- when a tangent is gone ------------------------------------------------------------------------------------------


@alike
def test_detached_in_place(torch):
    ad = torch.autograd.forward_ad
    with ad.dual_level():
        x = ad.make_dual(values(torch), torch.ones(3))
        y = x * 2
        view = y[1:]
        saved = y * y
        y.detach_()
        found = parts(torch, (y, y * 3, y[1:], view, saved, y.detach(), x.detach(), x))
        y.add_(x)
        return found, parts(torch, (y, view))


@alike
def test_detached_in_place_in_func(torch):
    def twice(x):
        y = x * x * x
        y.detach_()
        return y * x

    return torch.func.jvp(twice, (torch.tensor(3.0),), (torch.tensor(1.0),)), torch.func.grad(twice)(torch.tensor(3.0))


@alike
def test_data_has_no_tangent_and_keeps_that_of_its_tensor(torch):
    ad = torch.autograd.forward_ad
    with ad.dual_level():
        x = ad.make_dual(values(torch), torch.ones(3)) * 1
        y = ad.make_dual(values(torch), torch.full((3,), 5.0)) * 1
        plain = values(torch)
        found = parts(torch, (x.data,))
        x.data = y
        plain.data = y
        found += parts(torch, (x, plain, x * 2, plain * 2))
        x.data = torch.zeros(3)
        return found + parts(torch, (x, x * 2))


# --- gradcheck -------------------------------------------------------------------------------------------------------


def detached_in_place(torch, x):
    y = x * 2
    y.detach_()
    return y + x


CHECKED = {
    "right": lambda torch, x: function(torch, lambda c, x: x * 2, lambda c, t: t * 2, lambda c, g: g * 2).apply(x),
    "wrong": lambda torch, x: function(torch, lambda c, x: x * 2, lambda c, t: t * 3, lambda c, g: g * 2).apply(x),
    "another tensor": lambda torch, x: function(torch, lambda c, x: x[1:], lambda c, t: t[1:].clone()).apply(x),
    "wrong second result": lambda torch, x: function(
        torch, TWO, lambda c, t: (t * 2, t * 4), lambda c, g, h: g * 2 + h * 3
    ).apply(x),
    "detached in place": detached_in_place,
    "detached": lambda torch, x: x * x.detach(),
    "conjugated": lambda torch, x: function(torch, lambda c, x: x * 2, lambda c, t: t.conj() * 2).apply(x * (1 + 1j)),
    "nonlinear": lambda torch, x: function(torch, lambda c, x: x * 2, lambda c, t: t.sign() * 2).apply(x),
    "one for zeros": lambda torch, x: function(torch, lambda c, x: x * 2, lambda c, t: t * 2 + (t == 0)).apply(x),
    "of a closure": lambda torch, x: x * 2 + x.new_ones(()) * 3,
}


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("checked", CHECKED)
def test_gradcheck_of_tangents(checked, backward, fast):
    def scenario(torch):
        x = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
        return torch.autograd.gradcheck(
            lambda x: CHECKED[checked](torch, x), (x,), check_forward_ad=True, check_backward_ad=backward,
            fast_mode=fast, raise_exception=False,
        )  # fmt: skip

    def kind(torch):
        found = []
        found.append(error(lambda: found.append(scenario(torch))).partition(":")[0])
        return found

    kind.__name__ = "test_kind"
    alike(kind)()
