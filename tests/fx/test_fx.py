"""`torch.fx`: the same programs traced by both libraries give the same code and the same graph."""

import copy
import math
import operator
import pickle
import threading
import traceback

import pytest

import tensorgrad
import tensorgrad.fx
from tests.support.alike import alike, plain

torch = pytest.importorskip("torch", reason="torch is not installed: nothing to compare with")
pytest.importorskip("torch.fx")


def helper(x, k=2):
    return x * k


def flag_is_true(x, flag):
    return x * 2 if flag else x


torch.fx.wrap("helper")
tensorgrad.fx.wrap("helper")
torch.fx.wrap("len")
tensorgrad.fx.wrap("len")


def model(l):
    nn, F = l.nn, l.nn.functional

    class Inner(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(l.ones(4))
            self.register_buffer("shift", l.zeros(4))

        def forward(self, x):
            return x * self.scale + self.shift

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(3, 4)
            self.rest = nn.Sequential(nn.ReLU(), nn.Linear(4, 4), Inner())
            self.weight = nn.Parameter(l.ones(4))
            self.constant = l.arange(4.0)

        def forward(self, x: l.Tensor, y: l.Tensor | None = None, *, flag: bool = True):
            a = self.first(x)
            b = F.relu(a) + self.weight * (self.weight + self.constant)
            c = self.rest(b).flatten(1)
            return {"a": F.dropout(c, 0.5, training=self.training), "b": (b, c[0])}, self.rest(c)

    return Model()


# name -> function of the library and a proxy; run with a real tensor, too, unless the name ends with an underscore
PROGRAMS = {
    "operators": lambda l, x: (x + 1, 1 - x, x @ x, x**2, 2**x, -x, x // 2, x % 2, x / 2, abs(x), x > 0),
    "inverted": lambda l, x: (~(x > 0), x != 3, +x, (x > 0) | (x < 0), (x > 0) ^ (x < 0)),
    "augmented": lambda l, x: _augmented(x),
    "methods": lambda l, x: x.sum(-1, keepdim=True).view(-1).to(l.float64).clamp_(min=0),
    "attributes": lambda l, x: (x.T, x.shape[0], x.to(x.device).to(x.dtype)),
    "unpacked": lambda l, x: _unpacked(l, x),
    "items": lambda l, x: x[:, 1:2, None, ...] + x[..., 0],
    "functions": lambda l, x: l.cat([l.relu(x), l.add(x, x, alpha=2)], dim=1),
    "functional": lambda l, x: l.nn.functional.layer_norm(l.nn.functional.softmax(x, 1), (3,)),
    "by_method": lambda l, x: l.nn.functional.sigmoid(x) + l.nn.functional.tanh(x),
    "compiled": lambda l, x: l.nn.functional.gelu(l.nn.functional.linear(x, x)),
    "einsum": lambda l, x: l.einsum("ij,jk->ik", x, x) + l.einsum("ij,jk->ik", [x, x]),
    "tensors": lambda l, x: l.ones(3) * 2 + x + l.maximum(x, l.zeros(3)),
    "nested_results": lambda l, x: {"a": [x, (x + 1,)], "b": slice(1, 2), "c": (float("inf"), None, "s", l.float32)},
    "wrapped": lambda l, x: helper(x, k=3) + len(x),
    "math": lambda l, x: x * math.sqrt(2.0),
    "math_": lambda l, x: math.floor(x),
    "operator_module": lambda l, x: operator.add(x, 1),
    "several_outputs": lambda l, x: l.topk(x, 2)[0],
    "names": lambda l, x: (x.relu(), l.relu(x), x.sum(), l.nn.functional.relu(x)),
    "pool_": lambda l, x: l.nn.functional.max_pool2d(l.nn.functional.conv2d(x, x, padding=1), 2),
    "interpolate_": lambda l, x: l.nn.functional.interpolate(x, scale_factor=2, mode="nearest"),
    "batch_norm_": lambda l, x: l.nn.functional.batch_norm(x, x, x, training=True),
    "cross_entropy": lambda l, x: l.nn.functional.cross_entropy(x, x, label_smoothing=0.1),
    "pad_": lambda l, x: l.nn.functional.pad(x, (1, 1), value=2.0),
    "negative_power": lambda l, x: (-2) ** x,
}  # fmt: skip


def _augmented(x):
    y = x * 2
    y += 1
    return y


def _unpacked(l, x):
    a, b = x.shape
    return x.reshape(b, a), a


def written(l, name):
    return l.fx.symbolic_trace(lambda x: PROGRAMS[name](l, x))


@pytest.mark.parametrize("name", PROGRAMS)
def test_code_and_graph(name):
    ours, theirs = written(tensorgrad, name), written(torch, name)
    if name != "negative_power":  # PyTorch's code of this one computes -(2 ** x)
        assert ours.code == theirs.code
    assert plain(str(ours.graph)) == plain(str(theirs.graph))
    ours.graph.lint()
    if name.endswith("_"):
        return
    x = tensorgrad.arange(9.0).reshape(3, 3) - 4
    assert plain(ours(x)) == plain(PROGRAMS[name](tensorgrad, x))
    assert plain(tensorgrad.fx.Interpreter(ours).run(x)) == plain(ours(x))


def test_modules():
    def story(l):
        l.manual_seed(0)
        traced = l.fx.symbolic_trace(model(l))
        yield traced.code, str(traced.graph), [name for name, _ in traced.named_parameters()]
        yield [name for name, _ in traced.named_buffers()], list(traced.state_dict())
        yield str(traced), traced.print_readable(print_output=False)
        yield [(n.op, n.name, str(n.target), list(map(str, n.users))) for n in traced.graph.nodes]
        yield [n.meta.get("nn_module_stack") and list(n.meta["nn_module_stack"]) for n in traced.graph.nodes][:2]

    ours, theirs = list(story(tensorgrad)), list(story(torch))
    assert plain(ours) == plain(theirs)
    made = model(tensorgrad).eval()
    traced = tensorgrad.fx.symbolic_trace(made)
    x = tensorgrad.ones(2, 3)
    assert plain(traced(x)) == plain(made(x)) and not traced.training
    sum(map(tensorgrad.sum, traced(x)[1])).backward()
    assert made.weight.grad is not None and traced.weight is made.weight


def test_copies_and_pickles():
    traced = tensorgrad.fx.symbolic_trace(model(tensorgrad).eval())
    x = tensorgrad.ones(2, 3)
    for other in (copy.deepcopy(traced), copy.copy(traced), tensorgrad.fx.GraphModule(traced, traced.graph)):
        assert other.code == traced.code and plain(other.eval()(x)) == plain(traced(x))
    assert copy.deepcopy(traced).weight is not traced.weight
    simple = tensorgrad.fx.symbolic_trace(tensorgrad.nn.Sequential(tensorgrad.nn.Linear(3, 2), tensorgrad.nn.ReLU()))
    back = pickle.loads(pickle.dumps(simple))
    assert back.code == simple.code and plain(back(x)) == plain(simple(x))


@alike
def test_concrete_arguments(l):
    traced = l.fx.symbolic_trace(flag_is_true, concrete_args={"flag": True})
    with pytest.raises(AssertionError) as error:
        traced(l.ones(2), False)
    none = l.fx.symbolic_trace(lambda x, y=None: x if y is None else y, concrete_args={"y": None})
    return traced.code, traced(l.ones(2), True), str(error.value), str(none.graph), none(l.ones(2), None)


REFUSED = {
    "condition": lambda x: 1 if x > 0 else 2, "loop": lambda x: [y for y in x], "star": lambda x: max(*x),
    "keywords": lambda x: dict(**x), "int": lambda x: int(x), "contains": lambda x: x in [1],
    "range": lambda x: range(x),
    "assignment": lambda x: _assign(x), "object": lambda x: x + object(),
}  # fmt: skip


def _assign(x):
    x[0] = 3


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_traced(name):
    def told(l):
        try:
            return l.fx.symbolic_trace(REFUSED[name]).code
        except Exception as error:
            return type(error).__name__, str(error)

    assert told(tensorgrad) == told(torch)
    assert not tensorgrad.fx._symbolic_trace.is_fx_tracing()
    assert tensorgrad.nn.Linear(2, 2)(tensorgrad.ones(2)).shape == (2,)
    assert "__getattribute__" not in vars(tensorgrad.nn.Module)


@alike
def test_where_nodes_are_added(l):
    """Also without `with`; several after a node stand in reverse."""
    graph = l.fx.Graph()
    a = graph.placeholder("a")
    graph.output(a)
    with graph.inserting_after(a):
        graph.call_function(l.neg, (a,))
        graph.call_function(l.abs, (a,))
    graph.inserting_before(graph.output_node())
    last = graph.call_function(l.exp, (a,))
    with graph.inserting_before(last):
        graph.call_function(l.sin, (a,))
    graph.call_function(l.cos, (a,))
    graph.lint()
    return [node.name for node in graph.nodes]


@alike
def test_changing_graphs(l):
    traced = l.fx.symbolic_trace(lambda x, y: l.relu(x + y).sum() * 2)
    seen = []
    for node in list(traced.graph.nodes):
        if node.target is l.relu:
            with traced.graph.inserting_after(node):
                new = traced.graph.call_function(l.tanh, (node.args[0],))
            node.replace_all_uses_with(new)
            try:
                traced.graph.erase_node(next(iter(traced.graph.nodes)))
            except RuntimeError as error:
                seen.append(str(error))
            traced.graph.erase_node(node)
        if node.op == "call_method":
            node.kwargs = {"dim": 0}
            with traced.graph.inserting_before(node):
                traced.graph.call_function(l.add, (node.args[0], 1))  # dead code
    traced.graph.lint()
    seen.append(str(traced.graph))
    seen.append(traced.graph.eliminate_dead_code())
    traced.recompile()
    seen += [traced.code, len(traced.graph.nodes), [n.name for n in reversed(traced.graph.nodes)]]
    seen += [[n.name for n in traced.graph.find_nodes(op="placeholder")], traced(l.ones(2), l.ones(2))]
    try:
        list(traced.graph.nodes)[2].args[0].args.append(3)
    except (NotImplementedError, AttributeError) as error:
        seen.append(type(error).__name__)
    other = l.fx.Graph()
    values = {}
    other.output(other.graph_copy(traced.graph, values))
    other.lint()
    seen += [str(other), len(values)]
    first = next(iter(traced.graph.nodes))
    list(traced.graph.nodes)[-2].append(first)
    try:
        traced.graph.lint()
    except RuntimeError as error:
        seen.append(str(error).partition("\n")[0])
    return seen


@alike
def test_graphs_by_hand(l):
    graph = l.fx.Graph()
    x = graph.placeholder("x", l.Tensor)
    y = graph.placeholder("y", default_value=3)
    w = graph.get_attr("inner.w")
    z = graph.call_module("inner.layer", (x,))
    total = graph.call_function(l.add, (z, w), {"alpha": y})
    graph.output((graph.call_method("sum", (total,)), {"t": total}), type_expr=tuple)
    inner = l.nn.Module()
    inner.layer, inner.w = l.nn.Identity(), l.nn.Parameter(l.ones(2))
    by_dict = l.fx.GraphModule({"inner.w": inner.w, "inner.layer": inner.layer}, graph, "Made")
    seen = [by_dict.code, type(by_dict).__name__, by_dict(l.ones(2)), by_dict(l.ones(2), 4)]
    try:
        l.fx.GraphModule({}, graph)
    except RuntimeError as error:
        seen.append(str(error))
    by_dict.add_submodule("deep.er", l.nn.ReLU())
    seen.append([name for name, _ in by_dict.named_modules()])
    by_dict.delete_all_unused_submodules()
    seen.append([name for name, _ in by_dict.named_modules()])
    seen.append([by_dict.delete_submodule("inner.layer"), by_dict.delete_submodule("nothing")])
    return seen


@alike
def test_tracers_of_ones_own(l):
    class Own(l.fx.Tracer):
        def is_leaf_module(self, m, module_qualified_name):
            return module_qualified_name == "rest"

        def create_node(self, kind, target, args, kwargs, name=None, type_expr=None):
            node = super().create_node(kind, target, args, kwargs, name, type_expr)
            node.meta["kind"] = kind
            return node

    made = l.nn.Sequential()
    made.add_module("first", l.nn.Sequential(l.nn.Identity()))
    made.add_module("rest", l.nn.Sequential(l.nn.ReLU()))
    tracer = Own()
    graph = tracer.trace(made)
    return str(graph), [n.meta["kind"] for n in graph.nodes], l.fx.GraphModule(tracer.root, graph).code


@alike
def test_transformers_and_interpreters(l):
    class Swap(l.fx.Transformer):
        def call_function(self, target, args, kwargs):
            return super().call_function(l.tanh if target is l.relu else target, args, kwargs)

        def call_method(self, target, args, kwargs):
            return super().call_method("mean" if target == "sum" else target, args, kwargs)

    traced = l.fx.symbolic_trace(lambda x: l.relu(x).sum() + 1)
    swapped = Swap(traced).transform()
    seen = [swapped.code, swapped(l.ones(2))]
    try:
        l.fx.Interpreter(traced).run()
    except RuntimeError as error:
        seen.append(str(error).partition("\n")[0])
    try:
        l.fx.Interpreter(traced).run("text")
    except Exception as error:
        seen.append([line for line in str(error).split("\n") if line.startswith("While")])
    return seen


@alike
def test_patterns(l):
    traced = l.fx.symbolic_trace(lambda x, y: l.relu(x + y) * l.relu(y + x).sum(0))
    found = l.fx.replace_pattern(traced, lambda a, b: l.relu(a + b), lambda a, b: l.sigmoid(a) - b)
    return len(found), [len(m.nodes_map) for m in found], traced.code, traced(l.ones(2), l.ones(2))


@alike
def test_patterns_match_numbers_and_each_node_once(l):
    add = lambda a, b: a + b
    seen = []
    for function in (lambda x: x + 2, lambda x: x + x, lambda x: (x + 2) + 3, lambda x: l.cat([x, x]) + 1):
        traced = l.fx.symbolic_trace(function)
        found = l.fx.replace_pattern(traced, add, lambda a, b: a * b)
        seen.append((len(found), traced.code, traced(l.arange(3.0))))
    return seen


@alike
def test_patterns_with_filters(l):
    from importlib import import_module

    replace = import_module(f"{l.__name__}.fx.subgraph_rewriter").replace_pattern_with_filters
    story = []

    def sees_two(match, graph, pattern):
        story.append([str(node) for node in match.placeholder_nodes])
        story.append([[str(node) for node in nodes] for nodes in (match.anchors, match.returning_nodes)])
        return match.placeholder_nodes[1] == 2

    def other(match, graph, pattern):
        new = l.fx.Graph()
        x, y = new.placeholder("x"), new.placeholder("y")
        new.output(new.call_function(l.sub if match.placeholder_nodes[1] == 2 else l.mul, (x, y)))
        return new

    function = lambda x: (l.relu(x) + 1) * l.sin(x + 2)
    seen = []
    for options in (
        {"replacement": lambda a, b: l.relu(a) - b, "match_filters": [sees_two]},
        {"replacement": lambda a, b: a - b, "match_filters": [lambda *_: False]},
        {"replacement_callback": other},
    ):
        traced = l.fx.symbolic_trace(function)
        found = replace(traced, lambda a, b: a + b, **options)
        parts = [(str(part.anchor), [str(n) for n in part.replacements]) for part in found]
        seen.append((parts, traced.code, traced(l.arange(3.0))))
    traced = l.fx.symbolic_trace(lambda x: l.clamp(x, 0, 1) + l.clamp(x, 2, 3))
    for ignore in (False, True):
        found = replace(traced, lambda a: l.clamp(a, 2, 4), lambda a: l.relu(a), ignore_literals=ignore)
        seen.append((len(found), traced.code))
    return seen, story


@alike
def test_shapes(l):
    from importlib import import_module

    shape_prop = import_module(f"{l.__name__}.fx.passes.shape_prop")
    traced = l.fx.symbolic_trace(lambda x: l.nn.functional.relu(x).sum(0))
    shape_prop.ShapeProp(traced).propagate(l.ones(2, 3))
    return [tuple(n.meta["tensor_meta"].shape) for n in traced.graph.nodes], [
        (str(n.meta["tensor_meta"].dtype), n.meta["tensor_meta"].stride) for n in traced.graph.nodes
    ]


def test_other_threads_run_as_usual_meanwhile():
    traced, results = [], []

    def trace():
        for _ in range(20):
            traced.append(tensorgrad.fx.symbolic_trace(tensorgrad.nn.Sequential(tensorgrad.nn.Linear(2, 2))).code)

    def work():
        layer = tensorgrad.nn.Linear(2, 2)
        for _ in range(200):
            results.append(tensorgrad.nn.functional.relu(layer(tensorgrad.ones(2)) + layer.weight).shape)

    threads = [threading.Thread(target=f) for f in (trace, work, trace)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(traced)) == 1 and set(results) == {(2, 2)} and len(results) == 200
    assert not hasattr(tensorgrad.relu, "_records") and "__getattribute__" not in vars(tensorgrad.nn.Module)


def test_tracebacks_show_the_code():
    traced = tensorgrad.fx.symbolic_trace(lambda x: x.sum(7))
    with pytest.raises(IndexError) as error:
        traced(tensorgrad.ones(2))
    assert "sum_1 = x.sum(7);  x = None" in "".join(traceback.format_tb(error.tb))


@alike
def test_classes_that_are_not_tensors_override_functions(l):
    """What proxies need, and any class with `__torch_function__` may use."""
    seen = []

    class Like:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            seen.append((func.__name__, [t.__name__ for t in types], len(args), sorted(kwargs or {})))
            return "made"

    x, like = l.ones(2), Like()
    return [
        l.add(x, like), l.mul(like, 1), l.relu(like), l.cat([x, like]), x + like, x.matmul(like),
        l.nn.functional.relu(like), l.nn.functional.layer_norm(like, (2,)), l.sum(like, dim=0), seen[:5],
    ]  # fmt: skip


def test_wrap_only_at_the_top_level():
    with pytest.raises(NotImplementedError, match="top level"):
        tensorgrad.fx.wrap("sum")


@alike
def test_names_of_modules_in_small_letters(torch):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.activations_PascalCase = torch.nn.ReLU()
            self.ReLU = torch.nn.ReLU()
            self.ALL_CAPS = torch.nn.ReLU()
            self.aB_Cd = torch.nn.ReLU()

        def forward(self, x):
            return self.aB_Cd(self.ALL_CAPS(self.ReLU(self.activations_PascalCase(x))))

    return [node.name for node in torch.fx.symbolic_trace(Net()).graph.nodes]


@alike
def test_a_copy_of_a_module_that_is_in_its_own_meta(torch):
    import copy

    traced = torch.fx.symbolic_trace(torch.nn.Linear(2, 2))
    traced.meta["itself"] = traced
    copied = copy.deepcopy(traced)
    return copied is not traced, copied(torch.zeros(1, 2)).shape, list(copied.meta)


# Names that would be code if they were written as they are.
CODE = ['q") or exit("', "q') or exit('", "x\\", "a\nb", "class", "a b", "é", "0", "f(x)", '{0}"""', "\x00"]


@pytest.mark.parametrize("name", CODE)
def test_names_are_never_code(name):
    """The text of a graph quotes those of modules, parameters and arguments; others of nodes and inputs are refused."""
    nn, fx = tensorgrad.nn, tensorgrad.fx
    root = nn.Module()
    root.add_module(name, nn.Linear(2, 2))
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output(
        (graph.call_module(name, (x,)), graph.get_attr(f"{name}.bias"), graph.call_function(dict, (), {name: x}))
    )
    made = fx.GraphModule(root, graph)
    y, bias, named = made(tensorgrad.ones(1, 2))
    assert y.equal(root._modules[name](tensorgrad.ones(1, 2))) and bias is root._modules[name].bias
    assert list(named) == [name]
    graph = fx.Graph()
    x = graph.placeholder("x")
    x.name = name
    graph.output(x)
    try:
        assert fx.GraphModule(root, graph)(3) == 3
    except RuntimeError as refused:
        assert "must be an identifier" in str(refused)
    graph = fx.Graph()
    graph.output(graph.placeholder(name))
    if name == "é":
        assert fx.GraphModule(root, graph)(3) == 3
        return
    with pytest.raises(RuntimeError, match="must be an identifier"):
        fx.GraphModule(root, graph)
