"""Hooks: on tensors, on nodes, after accumulation, on groups of tensors, and on what the graph saves."""

import warnings

import pytest

import tensorgrad as torch_
from tests.support.alike import alike, error


@alike
def test_tensor_hooks_on_leaves_and_others(torch):
    seen = []
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = x * 3
    x.register_hook(lambda g: seen.append(("x", g.clone())))
    y.register_hook(lambda g: seen.append(("y", g.clone())))
    z = (y * y).sum()
    z.register_hook(lambda g: seen.append(("z", g.clone())))
    z.backward()
    return seen, x.grad


@alike
def test_hooks_replace_gradients_in_order(torch):
    x = torch.ones(2, requires_grad=True)
    y = x * 1
    y.register_hook(lambda g: g * 2)
    y.register_hook(lambda g: g + 1)
    x.register_hook(lambda g: g * 10)
    x.register_hook(lambda g: None)
    (y * 3).sum().backward()
    return x.grad


@alike
def test_hooks_see_the_sum_of_all_paths_once(torch):
    seen = []
    x = torch.ones(2, requires_grad=True)
    y = x * 2
    y.register_hook(lambda g: seen.append(g.clone()))
    (y + y * y).sum().backward()
    return seen


@alike
def test_removing_hooks(torch):
    seen = []
    x = torch.ones(2, requires_grad=True)
    handle = x.register_hook(lambda g: seen.append("first"))
    x.register_hook(lambda g: seen.append("second"))
    with x.register_hook(lambda g: seen.append("within")):
        x.sum().backward()
    handle.remove()
    handle.remove()
    x.sum().backward()
    return seen, type(handle).__name__


@alike
def test_a_hook_can_remove_itself(torch):
    seen = []
    x = torch.ones(2, requires_grad=True)

    def once(g):
        seen.append("once")
        handle.remove()

    handle = x.register_hook(once)
    x.register_hook(lambda g: seen.append("always"))
    x.sum().backward()
    x.sum().backward()
    return seen


@alike
def test_wrong_hooks(torch):
    x = torch.ones(2, requires_grad=True)
    y = x * 2
    handle = y.register_hook(lambda g: g[0])
    shape = error((y * 2).sum().backward)
    handle.remove()
    y = x * 2
    y.register_hook(lambda g: 3)
    kind = error(y.sum().backward)
    return (
        "has changed the size of value" in shape,
        kind,
        error(torch.ones(2).register_hook, print),
        error(torch.ones(2).register_post_accumulate_grad_hook, print),
        error(y.register_post_accumulate_grad_hook, print),
        error(torch.ones(2).retain_grad),
    )


@alike
def test_an_error_in_a_hook_reaches_the_caller(torch):
    x = torch.ones(2, requires_grad=True)

    def broken(g):
        raise KeyError("mine")

    handle = x.register_hook(broken)
    first = error(x.sum().backward)
    handle.remove()
    x.sum().backward()
    return first, x.grad, torch.is_grad_enabled()


@alike
def test_hooks_follow_the_version_of_the_tensor(torch):
    seen = []
    x = torch.ones(2, requires_grad=True)
    y = x * 2
    y.register_hook(lambda g: seen.append(("before", g.clone())))
    y.mul_(3)
    y.register_hook(lambda g: seen.append(("after", g.clone())))
    y.sum().backward()
    return seen


@alike
def test_retain_grad(torch):
    x = torch.ones(2, requires_grad=True)
    y = x * 2
    z = y * 3
    y.retain_grad()
    y.retain_grad()
    x.retain_grad()
    z.sum().backward(retain_graph=True)
    flags = [t.retains_grad for t in (x, y, z)]
    first = y.grad.clone()
    z.sum().backward()
    return flags, first, y.grad, x.grad


@alike
def test_retain_grad_and_writes(torch):
    x = torch.ones(2, requires_grad=True)
    y = x * 2
    y.retain_grad()
    y.mul_(3)
    flag = y.retains_grad
    (y * 5).sum().backward()
    return flag, y.grad, x.grad


@alike
def test_retain_grad_sees_what_the_hooks_made_of_it(torch):
    x = torch.ones(2, requires_grad=True)
    y = x * 2
    y.retain_grad()
    y.register_hook(lambda g: g * 7)
    y.sum().backward()
    return y.grad, x.grad


@alike
def test_node_hooks(torch):
    seen = []
    x = torch.ones(2, requires_grad=True)
    w = torch.full((2,), 3.0)
    y = x * w
    y.grad_fn.register_prehook(lambda grads: seen.append(("pre", [g.clone() for g in grads])))
    y.grad_fn.register_hook(
        lambda inputs, outputs: seen.append(("post", [g is None for g in inputs], [g.clone() for g in outputs]))
    )
    y.sum().backward()
    z = x * w
    z.grad_fn.register_prehook(lambda grads: (grads[0] * 2,))
    z.grad_fn.register_hook(lambda inputs, outputs: (inputs[0] * 10, inputs[1]))
    x.grad = None
    z.sum().backward()
    return seen, x.grad


def test_a_gradient_that_nobody_else_has_is_not_copied_because_of_hooks():
    import tensorgrad as torch

    def gradient_of(*hooks):
        """The addresses of the gradient that arrived, and of the one that was stored; and the gradient."""
        weight, arrived = torch.ones(3, 2, requires_grad=True), []
        weight.register_hook(lambda grad: arrived.append(grad.data_ptr()))
        for hook in hooks:
            weight.register_hook(hook)
        weight.register_post_accumulate_grad_hook(lambda tensor: None)
        torch.nn.functional.linear(torch.ones(1, 2), weight).sum().backward()
        return arrived[0], weight.grad.data_ptr(), weight.grad

    first, stored, _ = gradient_of()
    assert first == stored
    kept = []
    first, stored, grad = gradient_of(kept.append)  # this hook keeps it
    assert first != stored and kept[0].data_ptr() == first
    grad.zero_()
    assert kept[0].sum().item() == 6
    a, b = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    for leaf in (a, b):
        leaf.register_post_accumulate_grad_hook(lambda tensor: None)
    (a + b).sum().backward()  # both receive the same gradient
    a.grad.zero_()
    assert b.grad.tolist() == [1.0, 1.0]


@alike
def test_order_of_everything(torch):
    seen = []
    x = torch.ones(1, requires_grad=True)
    y = x * 2
    y.register_hook(lambda g: seen.append("tensor y"))
    y.grad_fn.register_prehook(lambda g: seen.append("pre y"))
    y.grad_fn.register_hook(lambda i, o: seen.append("post y"))
    accumulate = y.grad_fn.next_functions[0][0]
    accumulate.register_hook(lambda i, o: seen.append("post accumulate node"))
    accumulate.register_prehook(lambda g: seen.append("pre accumulate node"))
    x.register_post_accumulate_grad_hook(lambda t: seen.append(("post accumulate", t is x, t.grad.clone())))
    x.register_hook(lambda g: seen.append("tensor x"))
    y.sum().backward()
    return seen


@alike
def test_a_leafs_hooks_run_as_soon_as_its_gradient_is_complete(torch):
    seen = []
    first, second, third, unused = (torch.ones(2, 2, requires_grad=True) for _ in range(4))
    x = torch.ones(2, 2)
    for name, leaf in (("first", first), ("second", second), ("third", third), ("unused", unused)):
        leaf.register_post_accumulate_grad_hook(lambda t, name=name: seen.append((name, t.grad.sum().item())))
    hidden = x @ first
    hidden.register_hook(lambda g: seen.append("hidden"))
    later = (hidden + first) @ second
    later.register_hook(lambda g: seen.append("later"))
    ((later @ third) * second).sum().backward()
    return seen


@alike
def test_post_accumulate_hooks(torch):
    seen = []
    x = torch.ones(2, requires_grad=True)

    def step(parameter):
        with torch.no_grad():
            parameter.sub_(0.1 * parameter.grad)
        seen.append(parameter.grad.clone())
        parameter.grad = None

    handle = x.register_post_accumulate_grad_hook(step)
    (x * 3).sum().backward()
    (x * x).sum().backward(inputs=[x])
    handle.remove()
    (x * x).sum().backward()
    return seen, x, x.grad


@alike
def test_hooks_and_grad(torch):
    """What `autograd.grad` calls: hooks on the way and at the goals, and none behind them."""
    seen = []
    x = torch.ones(2, requires_grad=True)
    y = x * 2
    z = y * 3
    for name, tensor in (("x", x), ("y", y), ("z", z)):
        tensor.register_hook(lambda g, name=name: seen.append(f"tensor {name}"))
    for name, tensor in (("y", y), ("z", z)):
        tensor.grad_fn.register_prehook(lambda g, name=name: seen.append(f"pre {name}"))
        tensor.grad_fn.register_hook(lambda i, o, name=name: seen.append(f"post {name}"))
    x.register_post_accumulate_grad_hook(lambda t: seen.append("accumulated x"))
    torch.autograd.grad(z.sum(), y, retain_graph=True)
    seen.append("-")
    torch.autograd.grad(z.sum(), x)
    return seen, x.grad


@alike
def test_multi_grad_hooks(torch):
    seen = []
    a, b, c = (torch.full((2,), float(i + 1), requires_grad=True) for i in range(3))
    d = a * b
    register = torch.autograd.graph.register_multi_grad_hook
    handle = register((a, d, c), lambda grads: seen.append(("all", [None if g is None else g.clone() for g in grads])))
    other = register((a, b), lambda g: seen.append(("any", g.clone())), mode="any")
    (d.sum() + c.sum()).backward()
    (a * b).sum().backward()
    (a * c).sum().backward()
    handle.remove()
    other.remove()
    (a * b * c).sum().backward()
    return seen, error(register, (a,), print, mode="some")


@alike
def test_multi_grad_hooks_around_a_nested_backward(torch):
    seen = []
    a, b = (torch.ones(2, requires_grad=True) for _ in range(2))
    inner = torch.ones(2, requires_grad=True)
    torch.autograd.graph.register_multi_grad_hook((a, b), lambda grads: seen.append(len(grads)))

    def nested(factor):
        with torch.enable_grad():
            (inner * factor).sum().backward()

    a.register_hook(lambda g: nested(2))
    b.register_hook(lambda g: nested(3))
    (a * b).sum().backward()
    return seen, inner.grad


@alike
def test_hooks_under_create_graph(torch):
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = x * x
    y.register_hook(lambda g: g * x)
    (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    return first, second


# --- saved tensors -------------------------------------------------------------------------------------------------


@alike
def test_saved_tensors_go_through_the_hooks(torch):
    seen = []
    x = torch.tensor([1.0, 2.0], requires_grad=True)

    def pack(t):
        seen.append(("pack", t.detach().clone()))
        return t * 2

    def unpack(t):
        seen.append(("unpack", t.clone()))
        return t / 2

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        y = x * torch.tensor([3.0, 4.0])
        z = y.exp()
    z.sum().backward()
    return seen, x.grad


@alike
def test_what_the_hooks_give_is_what_is_used(torch):
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.shape, lambda shape: torch.full(shape, 10.0)):
        y = x.exp() + x * x
    y.sum().backward()
    return x.grad


@alike
def test_innermost_hooks_win(torch):
    seen = []
    x = torch.ones(2, requires_grad=True)

    def hooks(name):
        return torch.autograd.graph.saved_tensors_hooks(lambda t: (seen.append(name), t)[1], lambda t: t)

    with hooks("outer"):
        x.exp()
        with hooks("inner"):
            x.exp()
        x.exp()
    x.exp()
    return seen


@alike
def test_double_backward_through_the_hooks(torch):
    results = []
    for function in (lambda x: x.exp(), lambda x: x * x * x, lambda x: (x * 2).tanh(), lambda x: x / (x * x)):
        x = torch.tensor([0.5, 1.5], requires_grad=True)
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t.clone()):
            y = function(x)
            (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x, create_graph=True)
        (third,) = torch.autograd.grad(second.sum(), x)
        results.append((first.detach(), second.detach(), third))
    return results


@alike
def test_hooks_and_writes_in_place(torch):
    """A hook that keeps the very tensor must not see it overwritten by the op itself."""
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    w = torch.tensor([3.0, 4.0], requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        y = x * 1
        y.mul_(w)
        y.exp_()
        v = y.clone()
        v[0].mul_(w[1])
    v.sum().backward()
    return x.grad, w.grad


@alike
def test_hooks_on_lists_of_tensors(torch):
    count = []
    x = torch.ones(2, 3, requires_grad=True)
    w = torch.ones(3, 2, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (count.append(tuple(t.shape)), t)[1], lambda t: t):
        y = torch.cat([x, x * 2]) @ w
    y.sum().backward()
    return x.grad, w.grad, len(count) > 0


@alike
def test_saving_on_the_cpu(torch):
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    with torch.autograd.graph.save_on_cpu():
        y = (x * x).exp()
    y.sum().backward()
    return x.grad


@alike
def test_hooks_see_what_custom_functions_save(torch):
    seen = []

    class Times(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            result = a * b
            ctx.save_for_backward(a, result)
            return result

        @staticmethod
        def backward(ctx, g):
            a, result = ctx.saved_tensors
            return g * result / a, g * a

    x = torch.tensor([1.0, 2.0], requires_grad=True)
    w = torch.tensor([3.0, 4.0], requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (seen.append(t.detach().clone()), t)[1], lambda t: t * 1):
        y = Times.apply(x, w)
        (first,) = torch.autograd.grad(y.sum(), w, create_graph=True)
    first.sum().backward()
    return seen[:2], x.grad, w.grad  # (what the ops of backward save is their affair)


def test_a_hook_must_give_a_tensor():
    x = torch_.ones(2, requires_grad=True)
    with torch_.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: 3):
        y = x.exp()
    with pytest.raises(TypeError, match="Output of saved tensor unpack_hook expected to be a Tensor"):
        y.sum().backward()


# --- anomaly mode --------------------------------------------------------------------------------------------------


@alike
def test_anomaly_mode_names_the_op(torch):
    x = torch.tensor([-1.0, 4.0], requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.autograd.detect_anomaly():
            on = torch.is_anomaly_enabled()
            first = error(x.sqrt().sum().backward)
        off = torch.is_anomaly_enabled()
        with torch.autograd.set_detect_anomaly(True, check_nan=False):
            second = error(x.sqrt().sum().backward)
    x.grad = None
    x.sqrt().sum().backward()
    return on, off, first, second, x.grad


def test_anomaly_mode_names_the_line():
    x = torch_.tensor([-1.0, 4.0], requires_grad=True)
    with pytest.warns(UserWarning) as caught, torch_.autograd.detect_anomaly():
        y = (x * 2).sqrt()  # the guilty line
        with pytest.raises(RuntimeError, match="Function 'SqrtBackward0' returned nan values in its 0th output"):
            y.sum().backward()
    text = "".join(str(w.message) for w in caught)
    assert "Error detected in SqrtBackward0. Traceback of forward call that caused the error" in text
    assert "the guilty line" in text


def test_anomaly_mode_without_the_forward_call():
    x = torch_.tensor([-1.0], requires_grad=True)
    y = x.sqrt()
    warned = pytest.warns(UserWarning, match="No forward pass information available")
    with warned, torch_.autograd.detect_anomaly(), pytest.raises(RuntimeError, match="SqrtBackward0"):
        y.backward()


def test_anomaly_mode_names_the_line_of_custom_functions():
    class Bad(torch_.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * float("nan")

    x = torch_.ones(2, requires_grad=True)
    with pytest.warns(UserWarning) as caught, torch_.autograd.detect_anomaly():
        y = Bad.apply(x)  # the guilty line
        with pytest.raises(RuntimeError, match="Function 'BadBackward' returned nan values in its 0th output"):
            y.sum().backward()
    assert "the guilty line" in "".join(str(w.message) for w in caught)


# --- places in the graph -------------------------------------------------------------------------------------------


@alike
def test_gradient_edges_stand_for_tensors(torch):
    edge_of = torch.autograd.graph.get_gradient_edge
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    w = torch.tensor(3.0, requires_grad=True)
    y = x * w
    edge, z = edge_of(y), (y * y).sum()
    seen = [edge.node.name(), edge.output_nr, edge_of(x).node.name(), edge_of(x).node.variable is x]
    seen += torch.autograd.grad(z, (edge, w), retain_graph=True)
    seen += torch.autograd.grad(edge_of(z), [edge_of(x)], retain_graph=True)
    seen += torch.autograd.grad(edge, x, torch.ones(2), retain_graph=True)
    del y
    torch.autograd.backward([edge_of(z), edge], [None, torch.ones(2)], retain_graph=True)
    seen += [x.grad.clone(), w.grad.clone()]
    torch.autograd.backward(z, inputs=[edge_of(x)])
    a, b = torch.split(torch.ones(4, requires_grad=True) * 2, 2)
    other = torch.tensor(1.0, requires_grad=True)
    unused = torch.autograd.grad(b.sum(), [edge_of(other * 2), edge_of(b)], allow_unused=True)
    return seen, x.grad, w.grad, edge_of(b).output_nr, unused, a.detach()


@pytest.mark.parametrize(
    "do",
    [
        lambda torch, edge_of, x: edge_of(torch.ones(1)),
        lambda torch, edge_of, x: torch.autograd.grad(edge_of(x * 2), x),
        lambda torch, edge_of, x: torch.autograd.grad(edge_of(x * 2), x, torch.ones(3)),
        lambda torch, edge_of, x: torch.autograd.backward(edge_of(x * 2)),
        lambda torch, edge_of, x: torch.autograd.grad(
            x.sum(), edge_of(x * 2), allow_unused=True, materialize_grads=True
        ),
    ],
)
def test_what_gradient_edges_refuse(do):
    torch = pytest.importorskip("torch")
    errors = []
    for library in (torch_, torch):
        x = library.ones(2, requires_grad=True)
        errors.append(error(lambda: do(library, library.autograd.graph.get_gradient_edge, x)))
    assert errors[0] == errors[1]


# --- gradients of leaves -------------------------------------------------------------------------------------------


LAYOUTS = {
    "rows": lambda t: t.rand(2, 3, 4, 5),
    "channels last": lambda t: t.rand(2, 3, 4, 5).to(memory_format=t.channels_last),
    "transposed": lambda t: t.rand(5, 4, 3, 2).permute(3, 2, 1, 0),
    "one of a dimension": lambda t: t.rand(2, 1, 4, 5).to(memory_format=t.channels_last),
    "gaps": lambda t: t.rand(2, 3, 4, 10)[..., ::2],
    "gaps between rows": lambda t: t.rand(2, 3, 8, 5)[:, :, :4],
}
LOSSES = {
    "sum": lambda x: x.sum(),
    "expanded": lambda x: x.mean(1).sum(),
    "product": lambda x: (x * x.detach()).sum(),
    "given": lambda x: (x.flatten() * 2).sum(),
    "twice": lambda x: (x * 2).sum() + x.transpose(0, 1).exp().sum(),
}


@pytest.mark.parametrize("graph", [False, True], ids=["", "with graph"])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_gradient_lies_as_its_leaf_does(layout, loss, graph):
    torch = pytest.importorskip("torch")
    strides = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's about cycles
        for library in (torch_, torch):
            x = LAYOUTS[layout](library).detach().requires_grad_()
            LOSSES[loss](x).backward(create_graph=graph)
            strides.append([s for s, n in zip(x.grad.stride(), x.shape, strict=True) if n != 1])
            x.grad = None
    assert strides[0] == strides[1]


@alike
def test_groups_of_hooks_count_in_passes_for_some_inputs(torch):
    t = [torch.rand(2, requires_grad=True) for _ in range(4)]
    seen = []
    torch.autograd.graph.register_multi_grad_hook(t, lambda grads: seen.append([g is not None for g in grads]))
    out = (t[1] * t[2]).sum()
    for _ in range(3):
        out.backward(inputs=(t[1], t[2]), retain_graph=True)
    return seen


# --- what the graph saves ------------------------------------------------------------------------------------------


@alike
def test_saved_tensors_may_be_written_inside_the_context(torch):
    seen = []
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    with torch.autograd.graph.allow_mutation_on_saved_tensors():
        a = x.clone()
        b = (a * a).exp()
        c = b[:1] * b
        a.mul_(3)
        b.zero_()
        seen.append(torch.autograd.grad(c.sum(), x, create_graph=True)[0].detach())
    return seen


def test_what_contexts_of_saved_tensors_refuse():
    graph, x = torch_.autograd.graph, torch_.ones(2, requires_grad=True)
    with graph.allow_mutation_on_saved_tensors():
        y = x.exp()
        with pytest.raises(RuntimeError, match="nested"), graph.allow_mutation_on_saved_tensors():
            pass
    with pytest.raises(RuntimeError, match="outside of the 'allow_mutation_on_saved_tensors' context"):
        y.sum().backward()
    with graph.allow_mutation_on_saved_tensors() as kept:
        y = x.exp()
        kept.clear()
        with pytest.raises(RuntimeError, match="cleared"):
            y.sum().backward()
    with graph.disable_saved_tensors_hooks("one"):
        with graph.disable_saved_tensors_hooks("two"), pytest.raises(RuntimeError, match="two"), graph.save_on_cpu():
            pass
        with pytest.raises(RuntimeError, match="one"), graph.save_on_cpu():
            pass
        assert (x * 2).grad_fn is not None
    with graph.save_on_cpu(), pytest.raises(RuntimeError, match="three"), graph.disable_saved_tensors_hooks("three"):
        pass
    with graph.saved_tensors_hooks(lambda t: t.add_(1), lambda t: t):
        with pytest.raises(RuntimeError, match="pack hook is modifying its input"):
            x.exp()
        with pytest.raises(RuntimeError, match="pack hook is modifying its input"):
            _Square.apply(x)


class _Square(torch_.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x * 1)
        return x * x

    @staticmethod
    def backward(ctx, g):
        return g


def test_increment_version():
    x, y = torch_.ones(1), torch_.ones(1)
    torch_.autograd.graph.increment_version([x, y])
    torch_.autograd.graph.increment_version(x)
    assert (x._version, y._version) == (2, 1)
    with torch_.inference_mode():
        torch_.autograd.graph.increment_version(torch_.ones(1))


@alike
def test_hooks_of_outputs_without_a_gradient_hear_of_it(torch):
    """Of a node with several outputs each hook is called, with None where only the others have a gradient."""
    found = []
    replacing = (None, lambda grad: torch.tensor(5.0), lambda grad: grad * 2)
    makers = (lambda x: x.unbind(), lambda x: x.chunk(3), lambda x: x.split(1))
    for make in makers:
        for number in (0, 1):
            for replace in replacing:
                x = torch.tensor([1.0, 2.0, 4.0], requires_grad=True)
                seen = []
                outputs = make(x)
                outputs[0].register_hook(seen.append if replace is None else replace)
                text = (
                    error(outputs[number].sum().backward)
                    .partition(" expected [")[0]
                    .partition("unsupported")[0]
                    .rstrip(":")
                )
                found.append([[grad is None for grad in seen], text, x.grad])
    return found


@alike
def test_the_hooks_of_a_tensor_can_be_read_and_taken_away(torch):
    x = torch.ones(2, requires_grad=True)
    y = x * 2
    found = [t._backward_hooks is None for t in (x, y, torch.ones(1), y.detach())]
    for t in (x, y):
        t.register_hook(lambda g: g * 3)
        t.register_hook(lambda g: g + 1)
    x.register_post_accumulate_grad_hook(lambda t: None)
    found += [len(x._backward_hooks), len(y._backward_hooks), (x * 2)._backward_hooks is None]
    y.sum().backward(retain_graph=True)
    found.append(x.grad.tolist())
    x._backward_hooks = None
    x.grad = None
    y.sum().backward()
    return [*found, not x._backward_hooks, x.grad.tolist()]


@alike
def test_a_tensor_that_is_detached_in_place_keeps_its_hooks(torch):
    found = []
    for hooked in (lambda g: g * 5, lambda g: found.append(g.tolist())):
        x = torch.ones(3, requires_grad=True)
        y = x * 3
        handle = y.register_hook(hooked)
        z = y * 2
        y.detach_()
        y.requires_grad_()
        (z + y).sum().backward()
        found += [x.grad, y.grad]
        handle.remove()
        y.sum().backward()
        found.append(y.grad)
    return found


@alike
def test_a_hook_must_not_change_the_dtype(torch):
    found = []
    for name in ("double", "half", "bfloat16", "long", "float", "clone"):
        for place in ("leaf", "result", "before a node", "after a node"):
            x = torch.ones(3, requires_grad=True)
            y = x.sin()
            hook = lambda *given, name=name: getattr(given[0], name)()
            of_node = lambda *given, name=name: (getattr(given[0][0], name)(),)
            if place in ("leaf", "result"):
                (x if place == "leaf" else y).register_hook(hook)
            else:
                (y.grad_fn.register_prehook if place == "before a node" else y.grad_fn.register_hook)(of_node)
            found.append((error(y.sum().backward).partition(" (was")[0], x.grad))
    return found
