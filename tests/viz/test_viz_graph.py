"""Pictures of the graph: they match the engine's graph, boxes do not overlap, and nothing is kept alive."""

import gc
import re
import shutil
import subprocess
import sys
import weakref
import xml.etree.ElementTree as xml
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorgrad as torch
from tensorgrad import nn, viz
from tensorgrad.autograd.graph import Node
from tensorgrad.nn import functional as F
from tensorgrad.rows import switches
from tensorgrad.viz import drawing, svg
from tensorgrad.viz.drawing import KINDS
from tensorgrad.viz.folding import READABLE, fold
from tensorgrad.viz.graph import LEAF, MODULE, OP, Graph, Link, Shape, Vertex, collect, trace
from tensorgrad.viz.layout import GAP, crossings, layout, nearest, ranks, topological

SVG = "{http://www.w3.org/2000/svg}"


# --- models --------------------------------------------------------------------------------------------------------


class BasicBlock(nn.Module):
    def __init__(self, inside, out, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(inside, out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.relu = nn.ReLU()
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        same = stride == 1 and inside == out
        short = nn.Sequential(nn.Conv2d(inside, out, 1, stride, bias=False), nn.BatchNorm2d(out))
        self.downsample = None if same else short

    def forward(self, x):
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet18(nn.Module):
    def __init__(self, width=4, classes=10):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU()
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        for i in range(4):
            inside, out = width * 2 ** max(i - 1, 0), width * 2**i
            blocks = BasicBlock(inside, out, 1 if i == 0 else 2), BasicBlock(out, out)
            setattr(self, f"layer{i + 1}", nn.Sequential(*blocks))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(8 * width, classes)

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.c_attn, self.c_proj = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        batch, time, width = x.shape
        shape = batch, time, self.heads, width // self.heads
        q, k, v = (part.view(shape).transpose(1, 2) for part in self.c_attn(x).split(width, 2))
        scores = (q @ k.transpose(-2, -1)) / shape[-1] ** 0.5
        scores = scores.masked_fill(torch.ones(time, time).tril() == 0, float("-inf"))
        return self.c_proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, time, width))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1, self.attn, self.ln_2 = nn.LayerNorm(width), Attention(width, heads), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, layers=12, vocabulary=17, width=16, heads=2):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(32, width)
        self.h = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln_f, self.lm_head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, index):
        x = self.wte(index) + self.wpe(torch.arange(index.shape[1]))
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


def resnet():
    model = ResNet18()
    return model, lambda: F.cross_entropy(model(torch.randn(2, 3, 32, 32)), torch.tensor([1, 2]))


def gpt(layers=12):
    model, index = GPT(layers), torch.randint(0, 17, (2, 8))
    return model, lambda: F.cross_entropy(model(index).flatten(0, 1), index.flatten())


def mlp():
    model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2))
    return model, lambda: F.cross_entropy(model(torch.randn(4, 2)), torch.tensor([0, 1, 1, 0]))


def views_and_writes():
    x = torch.randn(4, 3, requires_grad=True)
    y = x * 2
    y[1] = x[0] * 3
    y.add_(1)
    a, b = y.unbind()[:2]
    return None, lambda: (torch.cat([a, b]).sin() * y.flatten()[:6]).sum()


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2


def custom():
    x = torch.randn(3, requires_grad=True)
    return None, lambda: Twice.apply(x.exp()).sum()


def second_order():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    (g,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    return None, lambda: (g * g).sum()


PROGRAMS = [mlp, resnet, gpt, views_and_writes, custom, second_order]


# --- the graph -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_the_graph_is_the_one_that_next_functions_show(program):
    loss = program()[1]()
    graph, targets = trace(loss)
    expected, seen, stack = Counter(), {loss.grad_fn}, [loss.grad_fn]
    while stack:  # with PyTorch's public API for the graph
        node = stack.pop()
        for number, (child, output) in enumerate(node.next_functions):
            if child is None:
                continue
            leaf = getattr(child, "variable", None)
            expected[id(node), number, id(child) if leaf is None else id(leaf), output] += 1
            if leaf is None and child not in seen:
                seen.add(child)
                stack.append(child)
    found = Counter((id(targets[a.target]), a.number, id(targets[a.source]), a.output)
                    for a in graph.links if a.number >= 0)  # fmt: skip
    assert found == expected
    assert {id(t) for t in targets if isinstance(t, Node)} == {id(n) for n in seen}
    assert targets[graph.root] is loss.grad_fn


def test_shapes_bytes_and_names_are_those_of_the_tensors():
    w = torch.ones(2, 3, dtype=torch.float64, requires_grad=True)
    x = torch.ones(4, 2, dtype=torch.float64)
    graph = collect((x @ w).tanh(), names={"w": w, "x": x})
    by_name = {v.name: v for v in graph.vertices}
    assert by_name["w"].kind == LEAF and by_name["w"].outputs == [Shape((2, 3), "float64", 8)]
    assert by_name["x"].kind == "input"
    (saved,) = by_name["tanh"].saved
    assert (saved.name, saved.shape.nbytes) == ("out", 4 * 3 * 8)
    assert by_name["tanh"].saved_bytes == 96
    assert graph.saved_bytes == 96 + 4 * 2 * 8  # the result of tanh, and x for the gradient of w


def test_memory_saved_twice_counts_once_and_leaves_not_at_all():
    x = torch.ones(10, requires_grad=True)
    assert collect(x * x).saved_bytes == 0
    y = x + 1
    assert collect(y * y + y.exp() * y).saved_bytes == 40 + 40  # y, and the result of exp
    assert collect(y[:2] * y[3:5]).saved_bytes == 40  # views keep their whole base
    assert collect(x[:2] * x[3:5]).saved_bytes == 0


def test_a_name_of_the_tensors_own():
    x = torch.ones(2, requires_grad=True)
    x.name = "mine"
    assert collect(x * 2).vertices[0].name == "mine"


def test_arguments_are_shown_unless_they_have_their_defaults():
    x = torch.ones(2, 3, requires_grad=True)
    assert collect(x.sum()).vertices[-1].arguments == ""
    assert collect(x.sum(1)).vertices[-1].arguments == "dim=(1,)"
    assert collect(x * 2.5).vertices[-1].arguments == "other=2.5"


def test_an_index_is_shown_as_it_was_written():
    x = torch.ones(4, 5, requires_grad=True)
    made = {"[0]": x[0], "[:, 1:]": x[:, 1:], "[..., 0]": x[..., 0], "[::2, None]": x[::2, None], "[-1, 2]": x[-1, 2]}
    assert [collect(y).vertices[-1].arguments for y in made.values()] == [*made]


def test_the_picture_keeps_nothing_alive():
    x = torch.ones(3, requires_grad=True)
    y = (x * 2).exp()
    node, values = weakref.ref(y.grad_fn), weakref.ref(y)
    gc.disable()
    try:
        picture = y.render()
        backward = y.render("backward")
        del y
        assert node() is None and values() is None
    finally:
        gc.enable()
    assert "ExpBackward0" in backward.svg and picture.graph.ops == 2


def test_a_freed_graph_still_has_a_picture():
    x = torch.ones(3, requires_grad=True)
    y = (x * x).sum()
    y.backward()
    assert "MulBackward0" in y.render("backward").svg
    assert y.render("backward").graph.vertices[1].saved[0].text == "used by a backward pass"


def test_values_packed_by_hooks_are_not_unpacked():
    def refuse(packed):
        raise AssertionError("unpacked")

    x = torch.ones(3, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: "packed", refuse):
        y = x * x
    assert "packed by a hook" in y.render("backward").svg


# --- modules -------------------------------------------------------------------------------------------------------


def test_a_recording_knows_the_module_of_every_op():
    model, program = gpt(1)
    with viz.record(model):
        loss = program()
    scopes = {(v.name, v.scope) for v in collect(loss).vertices if v.kind == OP}
    assert {
        ("softmax", "h.0.attn"),
        ("gelu", "h.0.mlp.1"),
        ("add", "h.0"),
        ("add", ""),
        ("linear", "lm_head"),
    } <= scopes


@pytest.mark.parametrize("program", [resnet, gpt], ids=lambda p: p.__name__)
def test_inferred_modules_are_never_wrong_about_the_outermost(program):
    model, run = program()
    with viz.record(model):
        loss = run()
    graph, targets = trace(loss, model)
    exact = {id(t): v.scope for v, t in zip(graph.vertices, targets) if v.kind == OP}
    for t in targets:
        if isinstance(t, Node):
            t.metadata.clear()
    graph, targets = trace(loss, model)
    known = 0
    for vertex, target in zip(graph.vertices, targets):
        if vertex.kind == OP:
            assert exact[id(target)].startswith(vertex.scope), (vertex, exact[id(target)])
            known += vertex.scope != "" or exact[id(target)] == ""
    assert known > 0.8 * graph.ops


def test_recording_restores_everything():
    model, program = mlp()
    before = list(switches.SLOW), list(switches.OBSERVERS)
    with pytest.raises(RuntimeError, match="on purpose"), viz.record(model) as notes:
        program()
        raise RuntimeError("on purpose")
    assert before == (switches.SLOW, switches.OBSERVERS)
    assert notes.stack == [] and not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_an_error_within_a_module_leaves_the_scopes_right():
    class Fails(nn.Module):
        def forward(self, x):
            raise ValueError

    model = nn.ModuleDict({"bad": Fails(), "good": nn.Linear(2, 2)})
    with viz.record(model):
        with pytest.raises(ValueError):
            model["bad"](torch.ones(2))
        y = model["good"](torch.ones(2)) * 2
    assert [v.scope for v in collect(y).vertices if v.kind == OP] == ["good", ""]


@pytest.mark.parametrize("program", [resnet, gpt], ids=lambda p: p.__name__)
@pytest.mark.parametrize("recorded", [False, True])
def test_large_models_are_folded_to_a_readable_size(program, recorded):
    model, run = program()
    if recorded:
        with viz.record(model):
            loss = run()
    else:
        loss = run()
    picture = loss.render(module=None if recorded else model)
    boxes = [v for v in picture.graph.vertices if v.kind in (OP, MODULE)]
    assert 5 < len(boxes) <= READABLE < loss.render(fold=0).graph.ops
    assert picture.graph.ops == loss.render(fold=0).graph.ops
    assert 0 < max(v.saved_bytes for v in boxes) <= picture.graph.saved_bytes == loss.render(fold=0).graph.saved_bytes
    names = {v.name for v in boxes if v.kind == MODULE}
    assert names >= ({"layer1.0", "layer4.1"} if program is resnet else {"h.0", "h.11"})
    parameters = [n for v in picture.graph.vertices for n in ([v.name] if v.kind == LEAF else v.parameters)]
    assert sorted(parameters) == sorted(n for n, _ in model.named_parameters())


def test_levels():
    model, run = gpt(2)
    with viz.record(model):
        loss = run()
    sizes = [len(loss.render(fold=n).graph.vertices) for n in (1, 2, 3, 4)]
    assert sizes == sorted(sizes) and sizes[0] < sizes[-1]
    assert {"h", "wte"} <= {v.name for v in loss.render(fold=1).graph.vertices}
    assert {"h.0.attn", "h.1.mlp", "wte"} <= {v.name for v in loss.render(fold=3).graph.vertices}
    with pytest.raises(ValueError, match="fold: expected"):
        loss.render(fold=-1)


def test_a_module_used_twice_with_something_between_is_two_boxes():
    model = nn.ModuleDict({"layer": nn.Linear(3, 3)})
    with viz.record(model):
        y = model["layer"](model["layer"](torch.ones(3)).sin())
    boxes = [v.name for v in y.render(fold=1).graph.vertices if v.kind in (OP, MODULE)]
    assert boxes == ["layer", "sin", "layer"]


def test_the_users_own_leaf_is_not_folded_away():
    model = nn.Sequential(nn.Linear(3, 3))
    x = torch.ones(3, requires_grad=True)
    for names in ({"x": x}, {}):
        graph = model(x).render(module=model, names=names, fold=1).graph
        assert [(v.kind, v.name) for v in graph.vertices] == [(LEAF, "x" if names else ""), (MODULE, "0")]


dags = st.integers(1, 14).flatmap(
    lambda n: st.tuples(
        st.just(n),
        st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).map(sorted).filter(lambda e: e[0] < e[1])
                 .map(tuple), max_size=30),
    )
)  # fmt: skip


@settings(deadline=None, max_examples=200)
@given(dags, st.data())
def test_folding_makes_no_cycle_and_loses_no_op(dag, data):
    n, edges = dag
    scopes = [data.draw(st.sampled_from(["", "a", "a.b", "a.c", "d", "d.e.f"])) for _ in range(n)]
    vertices = [Vertex(OP, f"op{i}", [Shape((1,), "float32", 4)], scope=s) for i, s in enumerate(scopes)]
    graph = Graph(vertices, [Link(u, v, k) for k, (u, v) in enumerate(edges)], n - 1)
    for levels in (None, 0, 1, 2):
        folded = fold(graph, levels)
        assert folded.ops == n
        topological(len(folded.vertices), [(a.source, a.target) for a in folded.links])  # raises for a cycle
        assert 0 <= folded.root < len(folded.vertices)


# --- the layout ----------------------------------------------------------------------------------------------------

sizes = st.tuples(st.floats(20, 300), st.floats(15, 120))


@settings(deadline=None, max_examples=200)
@given(dags, st.data())
def test_boxes_do_not_overlap_and_edges_reach_them_without_crossing_others(dag, data):
    n, edges = dag
    boxes = [data.draw(sizes) for _ in range(n)]
    values = [data.draw(st.integers(0, 2)) for _ in edges]
    placed = layout(boxes, edges, values)
    assert placed == layout(boxes, edges, values)
    rectangles = [(x, y, x + w, y + h) for (x, y), (w, h) in zip(placed.boxes, boxes)]
    for i, a in enumerate(rectangles):
        assert a[0] >= -1e-6 and a[1] >= -1e-6 and a[2] <= placed.width + 1e-6 and a[3] <= placed.height + 1e-6
        for b in rectangles[:i]:
            assert a[2] <= b[0] + 1e-6 or b[2] <= a[0] + 1e-6 or a[3] <= b[1] + 1e-6 or b[3] <= a[1] + 1e-6, (a, b)
    for (u, v), path in zip(edges, placed.edges):
        (x0, y0), (x1, y1) = path[0], path[-1]
        assert y0 == pytest.approx(rectangles[u][3]) and rectangles[u][0] <= x0 <= rectangles[u][2]
        assert y1 == pytest.approx(rectangles[v][1]) and rectangles[v][0] <= x1 <= rectangles[v][2]
        assert all(a[1] <= b[1] + 1e-6 for a, b in pairwise(path))
        for (ax, ay), (bx, by) in pairwise(path):
            for w, (left, top, right, bottom) in enumerate(rectangles):
                beside = max(ax, bx) <= left or right <= min(ax, bx) or by <= top + 1e-6 or bottom <= ay + 1e-6
                assert w in (u, v) or beside, "an edge runs through a box"


@settings(deadline=None)
@given(dags)
def test_ranks_lead_down(dag):
    n, edges = dag
    rank = ranks(n, edges)
    assert all(rank[u] < rank[v] for u, v in edges) and min(rank) >= 0


def test_a_cycle_has_no_layout():
    with pytest.raises(ValueError, match="cycle"):
        layout([(1, 1), (1, 1)], [(0, 1), (1, 0)])


@settings(deadline=None)
@given(st.permutations(range(5)), st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=12, unique=True))
def test_crossings_are_counted(below, pairs):
    after = [[5 + v for u, v in pairs if u == i] for i in range(5)] + [[] for _ in range(5)]
    place = {5 + v: i for i, v in enumerate(below)}
    ends = [(u, place[5 + v]) for u, v in pairs]
    expected = sum(a[0] < b[0] and a[1] > b[1] for a in ends for b in ends)
    assert crossings([list(range(5)), [5 + v for v in below]], after) == expected


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(-50, 50), st.floats(0.5, 8)), min_size=1, max_size=8), st.floats(0, 9))
def test_nearest_places_keep_their_distance_and_cannot_be_bettered(points, gap):
    wanted, weights = [p for p, _ in points], [w for _, w in points]
    gaps = [gap] * (len(points) - 1)
    found = nearest(wanted, weights, gaps)
    assert all(b - a >= gap - 1e-9 for a, b in pairwise(found))
    cost = sum(w * (x - p) ** 2 for x, p, w in zip(found, wanted, weights))
    for i in range(len(points)):  # moves all points from i on slightly to the right, or all up to i to the left
        for part, step in ((range(i, len(points)), 1e-3), (range(i + 1), -1e-3)):
            moved = [x + step * (k in part) for k, x in enumerate(found)]
            assert sum(w * (x - p) ** 2 for x, p, w in zip(moved, wanted, weights)) >= cost - 1e-9


def test_a_straight_chain_is_straight():
    placed = layout([(50, 20)] * 6, [(i, i + 1) for i in range(5)])
    assert len({x for x, _ in placed.boxes}) == 1 and all(len({x for x, _ in path}) == 1 for path in placed.edges)


def test_boxes_of_a_rank_keep_a_gap():
    (a, _), (b, _), _ = layout([(50, 20), (60, 20), (10, 10)], [(0, 2), (1, 2)]).boxes
    assert abs(a - b) >= 50 + GAP - 1e-9


# --- pictures ------------------------------------------------------------------------------------------------------


def boxes_of(picture):
    """Returns the box groups of a picture, which must be well-formed XML."""
    root = xml.fromstring(picture.svg)
    return [g for g in root.iter(f"{SVG}g") if any("tg-box" in r.get("class", "") for r in g.findall(f"{SVG}rect"))]


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_every_program_has_its_picture(program, direction):
    model, run = program()
    picture = run().render(direction, module=model)
    drawn = [v for v in picture.graph.vertices if direction == "forward" or v.kind != "input"]
    assert len(boxes_of(picture)) == len(drawn)
    root = xml.fromstring(picture.svg)
    assert root.get("role") == "img" and root.find(f"{SVG}title").text == picture.title
    assert picture.svg == picture._repr_svg_()


def test_what_the_boxes_say():
    w = torch.ones(2, 3, requires_grad=True)
    y = (torch.ones(4, 2) @ w).tanh()
    texts = ["".join(t.itertext()) for g in boxes_of(y.render(names={"w": w})) for t in g.findall(f"{SVG}text")]
    assert {"w", "matmul", "tanh", "float32 [2, 3]", "float32 [4, 3]", "float32 [4, 2]"} <= set(texts)
    back = y.render("backward", names={"w": w})
    texts = ["".join(t.itertext()) for t in xml.fromstring(back.svg).iter(f"{SVG}text")]
    assert {"TanhBackward0", "MmBackward0", "saves out float32 [4, 3], 48 B", "accumulates .grad"} <= set(texts)


def test_inputs_are_numbered_on_the_way_back():
    a, b = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    notes = [t.text for g in xml.fromstring((a / b).render("backward").svg).iter(f"{SVG}g")
             if g.get("class") == "tg-edge" for t in g.findall(f"{SVG}text")]  # fmt: skip
    assert sorted(notes) == ["0", "1"]


def test_outputs_are_numbered_and_have_lines_of_their_own():
    a, b, c = torch.ones(6, requires_grad=True).sin().split(2)
    root = xml.fromstring(((a + c.exp().exp()) * b * c).render().svg)
    starts = {}
    for g in root.iter(f"{SVG}g"):
        if g.get("class") == "tg-edge" and g.find(f"{SVG}text") is not None:
            path = g.find(f"{SVG}path").get("d")
            starts.setdefault(g.find(f"{SVG}text").text, set()).add(re.split("[VC]", path)[0])
    assert set(starts) == {"0", "1", "2"}
    assert all(not a & b for n, a in starts.items() for m, b in starts.items() if n != m)


def test_hostile_names_are_only_text(tmp_path):
    w = torch.ones(2, requires_grad=True)
    name = '</text><script>alert("&")</script>]]>'
    picture = (w * 2).render(names={name: w})
    texts = ["".join(t.itertext()) for t in xml.fromstring(picture.svg).iter(f"{SVG}text")]
    assert svg.shortened(name, drawing.WIDEST, 12.5) in texts
    assert "<script" not in picture.svg
    assert name.replace('"', r"\"") in picture.dot


@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_tensor_without_a_graph_is_one_box(requires_grad):
    picture = torch.ones(2, 3, requires_grad=requires_grad).render()
    assert len(boxes_of(picture)) == 1 and "float32 [2, 3]" in picture.svg
    assert len(boxes_of(torch.ones(2, requires_grad=requires_grad).render("backward"))) == 1
    assert picture.title.startswith("A leaf" if requires_grad else "A tensor without a graph")


def test_a_meta_tensor_has_a_picture():
    w = torch.empty(1000, 1000, device="meta", requires_grad=True)
    assert "float32 [1000, 1000]" in (w @ w).render().svg


def test_wrong_arguments_are_explained():
    w = torch.ones(2, requires_grad=True)
    with pytest.raises(ValueError, match="'forward' or 'backward'"):
        (w * 2).render("sideways")
    with pytest.raises(TypeError, match="expected a tensor for 'w'"):
        (w * 2).render(names={"w": 3})
    with pytest.raises(TypeError, match="expected a tensor with a graph, but got float"):
        viz.render(3.0)


def test_a_long_chain_is_refused_unless_it_is_asked_for():
    x = torch.ones(1, requires_grad=True)
    y = x
    for _ in range(3200):
        y = y + 1
    with pytest.raises(ValueError, match="render\\(module=model\\)"):
        y.render()
    assert y.render(fold=0).graph.ops == 3200  # no recursion


@pytest.mark.parametrize("index", [0, 1])
def test_text_in_boxes_has_enough_contrast(index):
    for fill, _, _ in KINDS.values():
        for ink in ("ink", "muted"):
            assert svg.contrast(svg.PALETTE[ink][index], svg.PALETTE[fill][index]) >= 4.5, (ink, fill)


def test_files(tmp_path):
    picture = mlp()[1]().render()
    xml.parse(picture.save(tmp_path / "graph.svg"))
    assert (tmp_path / picture.save(tmp_path / "graph.dot").name).read_text() == picture.dot
    assert picture.save(tmp_path / "graph.html").read_text().count("<svg") == 1
    with pytest.raises(ValueError, match=r"\.dot"):
        picture.save(tmp_path / "graph.gif")


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_graphviz_reads_the_dot_text(direction):
    picture = resnet()[1]().render(direction)
    plain = subprocess.run(["dot", "-Tplain"], input=picture.dot.encode(), capture_output=True, check=True).stdout
    kinds = Counter(line.split()[0] for line in plain.decode().splitlines())
    assert kinds["node"] == len(boxes_of(picture))
    assert kinds["edge"] == sum(direction == "forward" or a.number >= 0 for a in picture.graph.links)


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
def test_graphviz_stands_in_for_a_missing_converter(tmp_path, monkeypatch):
    from tensorgrad.viz import convert

    monkeypatch.setattr(convert, "CONVERTERS", {})
    picture = (torch.ones(2, requires_grad=True) * 2).render()
    assert picture.save(tmp_path / "graph.png").read_bytes().startswith(b"\x89PNG")
    assert picture.save(tmp_path / "graph.pdf").read_bytes().startswith(b"%PDF")


def test_what_is_missing_for_a_png_is_one_line(tmp_path, monkeypatch):
    from tensorgrad.viz import convert

    monkeypatch.setattr(convert, "CONVERTERS", {})
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(RuntimeError, match="pip install") as error:
        torch.ones(2).render().save(tmp_path / "graph.png")
    assert "\n" not in str(error.value) and "Graphviz" in str(error.value)


def test_show_opens_the_browser(monkeypatch):
    import webbrowser

    opened = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    torch.ones(2).render().show()
    assert len(opened) == 1 and opened[0].startswith("file:")


def test_importing_tensorgrad_does_not_import_pictures():
    program = "import sys, tensorgrad; print(any(m.startswith('tensorgrad.viz') for m in sys.modules))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"


def test_functions_are_not_hidden_by_files():
    import importlib

    for name, file in viz._FILES.items():
        importlib.import_module(f"tensorgrad.viz.{file}")
        assert callable(getattr(viz, name)), f"viz.{name} is a module"


def test_labels_say_what_people_write():
    """Indices in brackets, numbers with few digits: no label is the representation of an object of Python."""
    q, x = torch.randn(1, 2, 3, 8, requires_grad=True), torch.randn(4, 3, requires_grad=True)
    made = {
        "[0]": x[0], "[1:, ::2]": x[1:, ::2], "[..., 0]": x[..., 0],
        "scale=0.3536": F.scaled_dot_product_attention(q, q, q, scale=8**-0.5),
        "0.3333": x * (1 / 3), "0.1": x * 0.1,
    }  # fmt: skip
    for wanted, result in made.items():
        shown = [vertex.arguments for vertex in collect(result).vertices]
        assert any(wanted in one for one in shown), (wanted, shown)
        assert not any("Ellipsis" in one or "slice(" in one or re.search(r"\d\.\d{7}", one) for one in shown), shown
