"""The explorer's page in a browser: it can be stepped through, its values equal `.grad`, and it is accessible."""

import json
import os
import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import tensorgrad as torch
from tensorgrad import nn, viz
from tensorgrad.autograd.graph import Node
from tensorgrad.nn import functional as F
from tensorgrad.viz import formulas
from tensorgrad.viz.digest import digest
from tensorgrad.viz.explorer import steps
from tensorgrad.viz.graph import trace
from tensorgrad.viz.values import gradients, values
from tests.support.chromium import Chromium, needs_chromium
from tests.viz.test_viz_graph import PROGRAMS


def data_of(path) -> dict:
    """Returns the data inside a page."""
    return json.loads(re.search(r'id="data">(.*?)</script>', Path(path).read_text("utf-8"), re.S)[1])


def numbers(tensor) -> np.ndarray:
    """Returns the values of a digest that shows all of them, without their shape."""
    assert tensor["exact"]
    return np.array([v for row in tensor["rows"] for v in row], dtype=np.float64)


def mlp():
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3))
    x, target = torch.randn(5, 3), torch.tensor([0, 2, 1, 1, 0])
    return model, {"x": x, "target": target}, F.cross_entropy(model(x), target)


def xor():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1), nn.Sigmoid())
    x = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    y = torch.tensor([[0.0], [1.0], [1.0], [0.0]])
    return model, {"x": x, "y": y}, ((model(x) - y) ** 2).mean()


# --- the data of the page ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("program", [mlp, xor], ids=lambda p: p.__name__)
def test_gradients_are_those_of_backward_and_nothing_is_changed(program, tmp_path):
    model, names, loss = program()
    for p in model.parameters():
        p.grad = torch.full_like(p, 7.0)
    page = viz.explore(loss, tmp_path / "page.html", module=model, names=names)
    assert all((p.grad == 7).all() for p in model.parameters())
    model.zero_grad()
    loss.backward()  # the graph is still there
    found = {v["name"]: v for v in data_of(page)["vertices"]}
    for name, p in model.named_parameters():
        assert np.array_equal(numbers(found[name]["gradients"][0]).astype(np.float32), p.grad.numpy().ravel()), name
        assert np.array_equal(numbers(found[name]["values"][0]).astype(np.float32), p.detach().numpy().ravel()), name
    for name, tensor in names.items():
        if name in found:
            shown = numbers(found[name]["values"][0]).astype(tensor.numpy().dtype)
            assert np.array_equal(shown, tensor.numpy().ravel())


def test_intermediate_gradients_are_those_of_retain_grad():
    x = torch.randn(3, 4, requires_grad=True)
    made = [x.sin()]
    made.append(made[-1] @ torch.randn(4, 2))
    made.append(made[-1] * made[-1].exp())
    loss = made[-1].sum()
    _, targets = trace(loss)
    found = gradients(loss, targets)
    for t in made:
        t.retain_grad()
    loss.backward()
    for t in (*made, x):
        key = id(t.grad_fn) if t.grad_fn is not None else id(t)
        assert np.array_equal(found[key, 0], t.grad.numpy())


def test_retained_gradients_and_hooks_are_left_as_they_were(tmp_path):
    x = torch.ones(3, requires_grad=True)
    y = x * 2
    y.retain_grad()
    calls = []
    y.register_hook(calls.append)
    loss = (y * y).sum()
    viz.explore(loss, tmp_path / "page.html")
    assert y.grad is None and x.grad is None and len(calls) == 1
    loss.backward()
    assert y.grad.tolist() == [4.0] * 3 and x.grad.tolist() == [8.0] * 3


@pytest.mark.parametrize("recorded", [False, True])
def test_values_are_those_that_were_computed(recorded):
    model, _, _ = mlp()
    x = torch.randn(2, 3)
    made = []

    def run():
        made[:] = [model[0](x)]
        made.append(model[1](made[-1]))
        made.append(model[2](made[-1]))
        made.append(made[-1].t().reshape(3, 2))  # views save nothing, so these values are recomputed
        made.append(made[-1] - 1.5)
        made.append(made[-1].sum(0, keepdim=True))
        made.append((made[-1] * made[-1]).mean())
        return made[-1]

    if recorded:
        with viz.record(model):
            loss = run()
    else:
        loss = run()
    _, targets = trace(loss)
    known = values(loss, targets)
    for t in made:
        if (id(t.grad_fn), 0) in known or recorded:
            assert np.array_equal(known[id(t.grad_fn), 0], t.detach().numpy())
    unknown = [t.name() for t in targets if isinstance(t, Node) and (id(t), 0) not in known]
    assert unknown == [] if recorded else len(unknown) <= 2


def test_a_value_that_was_written_over_is_not_shown():
    x = torch.ones(3, requires_grad=True)
    with viz.record():
        y = x + torch.full((3,), 4.0)  # cannot be recomputed: the other operand is not kept
        z = x * 2  # can be recomputed
        loss = (y + z).sum()
    nodes = y.grad_fn, z.grad_fn
    known = values(loss, trace(loss)[1])
    assert [known[id(n), 0].tolist() for n in nodes] == [[5.0] * 3, [2.0] * 3]
    with torch.no_grad():
        y.zero_()
        z.zero_()
    known = values(loss, trace(loss)[1])
    assert (id(nodes[0]), 0) not in known
    assert known[id(nodes[1]), 0].tolist() == [2.0] * 3


def test_random_ops_are_not_run_again():
    x = torch.ones(100, requires_grad=True)
    torch.manual_seed(0)
    loss = F.dropout(x + 1, 0.5).sum()
    state = torch.get_rng_state()
    known = values(loss, trace(loss)[1])
    assert torch.equal(torch.get_rng_state(), state)
    for node in (n for n in trace(loss)[1] if isinstance(n, Node)):
        if node.name().startswith("Mul") and (id(node), 0) in known:
            assert known[id(node), 0].sum() == loss.item()


def test_notes_live_no_longer_than_the_graph():
    import gc
    import weakref

    x = torch.ones(1000, requires_grad=True)
    gc.disable()
    try:
        model = nn.Sequential(nn.Linear(1000, 2))
        with viz.record(model):
            y = model(x * 2).exp()
        array, was = weakref.ref(y.grad_fn.metadata["tensorgrad.viz"].values[0][1]), weakref.ref(model)
        del model
        assert was() is None and array() is not None  # the notes do not keep the model
        del y
        assert array() is None
    finally:
        gc.enable()


def test_a_function_is_recorded_and_every_value_known(tmp_path):
    model, names, _ = mlp()
    page = viz.explore(lambda: F.cross_entropy(model(names["x"]) + 1, names["target"]), tmp_path / "page.html")
    assert all(t for v in data_of(page)["vertices"] for t in v["values"])


def test_errors_say_what_to_do(tmp_path):
    x = torch.ones(3, requires_grad=True)
    path = tmp_path / "page.html"
    with pytest.raises(RuntimeError, match="no graph"):
        viz.explore(x, path)
    with pytest.raises(RuntimeError, match="scalar"):
        viz.explore(x * 2, path)
    with pytest.raises(TypeError, match="got int"):
        viz.explore(3, path)
    loss = (x * x).sum()
    loss.backward()
    with pytest.raises(RuntimeError, match="second time"):
        viz.explore(loss, path)
    y = x
    for _ in range(1501):
        y = y * 1
    with pytest.raises(ValueError, match="a page can show at most 1500"):
        viz.explore(y.sum(), path)
    assert not path.exists()
    viz.explore(x * 2, path, gradient=torch.tensor([1.0, 2.0, 3.0]))
    assert numbers(data_of(path)["vertices"][0]["gradients"][0]).tolist() == [2, 4, 6]


@pytest.mark.parametrize(
    "array",
    [
        np.array(3.5, "float32"), np.array([1, 2, 3]), np.array([True, False]), np.zeros((0, 3)),
        np.array([np.nan, np.inf, -np.inf, 1.0]), np.array([1e308, -1e308, 1e308]), np.array([1 + 1j, 2]),
        np.random.default_rng(0).normal(size=(7, 30, 41)).astype("float16"), np.full(300, np.nan),
        np.arange(10000, dtype="int64"), np.array([2**40, -1]),
    ],
)  # fmt: skip
def test_digests_are_json_and_add_up(array):
    shown = json.loads(json.dumps(digest(array), allow_nan=False))
    assert shown["count"] == array.size and shown["shape"] == list(array.shape)
    if shown["exact"]:
        flat = [v for row in shown["rows"] for v in row]
        assert len(flat) == array.size
        expected = np.abs(array) if array.dtype.kind == "c" else array
        assert np.array_equal(np.array([float(v) for v in flat]), expected.ravel().astype(float), equal_nan=True)
    finite = array[np.isfinite(array)] if array.dtype.kind == "f" else array.ravel()
    assert sum(shown["bins"]) in (0, finite.size)


def test_a_coarse_map_has_the_means_of_its_blocks():
    array = np.random.default_rng(1).normal(size=(50, 37))
    shown = digest(array, 10)
    assert shown["block"] == [5, 4] and len(shown["rows"]) == 10 and len(shown["rows"][0]) == 10
    assert shown["rows"][1][2] == pytest.approx(array[5:10, 8:12].mean(), rel=1e-3)
    assert shown["rows"][9][9] == pytest.approx(array[45:, 36:].mean(), rel=1e-3)


def test_bfloat16_and_meta_tensors():
    pytest.importorskip("ml_dtypes")
    assert digest(torch.tensor([1.5, 2.0], dtype=torch.bfloat16)._array)["rows"] == [[1.5, 2.0]]
    assert digest(torch.empty(3, device="meta")._array)["rows"] == []


def test_formulas_are_those_of_the_row():
    x, y = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    formula = formulas.of_node((x * y).grad_fn)
    assert formula.signature == "mul(input, other)"
    assert formula.derivatives == [("input", "g * conj(other)"), ("other", "g * conj(input)")]
    twin = formulas.of_node(F.layer_norm(x, (2,)).grad_fn).twin
    assert twin.startswith("def ") and "mean" in twin


def test_every_formula_of_every_op_is_found():
    from tensorgrad.rows.kernel_tables import OPS

    for op in OPS.values():
        if op.name.endswith("_demo") or op.name.startswith("toy_"):
            continue
        for function in filter(None, [*op.formulas.values(), op.backward, op.twin]):
            assert not hasattr(function, "__code__") or formulas.source(function), (op.name, function)


def test_the_order_is_the_engines():
    from tensorgrad.autograd import engine

    model, _, loss = mlp()
    graph, targets = trace(loss)
    order = [id(targets[s["vertex"]]) for s in steps(graph) if s["phase"] == "backward"]
    ran = []
    engine.OBSERVERS.append(lambda node, start, seconds: ran.append(id(node)))
    try:
        loss.backward()
    finally:
        engine.OBSERVERS.pop()
    assert [i for i in order if i in ran] == ran
    leaves = {id(p) for p in model.parameters()}
    assert leaves <= set(order)


def test_the_page_loads_nothing_and_is_escaped(tmp_path):
    w = torch.ones(2, requires_grad=True)
    name = "</script><img src=x onerror=alert(1)>{{data}}"
    text = viz.explore((w * w).sum(), tmp_path / "page.html", names={name: w}).read_text("utf-8")
    assert "<img" not in text and text.count("</script>") == 2
    assert not re.search(r"@import|url\(|fetch\(|import\(|https?://(?!www\.w3\.org/)", text)

    class Attributes(HTMLParser):
        def handle_starttag(self, tag, attrs):
            found.update((tag, name) for name, _ in attrs)

    found: set = set()
    Attributes().feed(text)
    assert ("button", "type") in found
    assert not any(a in ("src", "href", "srcset", "action") or a.startswith(("on", "xlink")) for _, a in found)


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_every_program_can_be_explored(program, recorded, tmp_path):
    model, run = program()
    made = []
    loss = (lambda: made.append(run()) or made[0]) if recorded else run()
    data = data_of(viz.explore(loss, tmp_path / "page.html", module=model))
    assert all(v["gradients"][0] for v in data["vertices"] if v["kind"] == "leaf")
    if recorded:
        made[0].backward()  # the graph was kept
        assert numbers(data["vertices"][-1]["values"][0])[0] == pytest.approx(made[0].item(), rel=1e-6)
        grads = [v["gradients"][0]["mean"] for v in data["vertices"] if v["kind"] == "leaf" and v["name"]]
        if model is not None:
            by_name = dict(model.named_parameters())
            names = [v["name"] for v in data["vertices"] if v["kind"] == "leaf"]
            assert grads == [pytest.approx(float(by_name[n].grad.double().mean())) for n in names]


# --- the page in a browser -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser():
    with Chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Writes pages. Returns name -> (path, model, names, loss)."""
    folder = tmp_path_factory.mktemp("pages")
    found = {}
    for program in (mlp, xor):
        model, names, loss = program()
        path = viz.explore(loss, folder / f"{program.__name__}.html", module=model, names=names)
        found[program.__name__] = path, model, names, loss
    return found


def cells(page, heading: str) -> np.ndarray:
    """Returns the values of the first table below a heading, checked against their full digits."""
    found = page.run(
        f"""[...[...document.querySelectorAll('#details section')].find(s => s.querySelector('h3').textContent
        === '{heading}').querySelector('table').querySelectorAll('td')].map(c => [c.textContent, c.title])"""
    )
    shown, full = (np.array([float(pair[i]) for pair in found]) for i in (0, 1))
    assert np.allclose(shown, full, rtol=1e-4, atol=0)
    return full


def state(page) -> tuple[int, str, str]:
    """Returns the step (from 1), its phase, and the heading."""
    text = page.run("document.getElementById('status').textContent")
    found = re.match(r"Step (\d+) of \d+, (\w+): ", text)
    return int(found[1]), found[2], page.run("document.querySelector('#details h2').textContent")


@needs_chromium
@pytest.mark.parametrize("name", ["mlp", "xor"])
def test_it_steps_and_the_numbers_shown_are_those_of_grad(browser, made, name):
    path, model, _, loss = made[name]
    model.zero_grad()
    loss.backward(retain_graph=True)
    expected = {n: p.grad.numpy() for n, p in model.named_parameters()}
    page = browser.open(path)
    data, seen = data_of(path), {}
    for i, step in enumerate(data["steps"]):
        number, phase, heading = state(page)
        vertex = data["vertices"][step["vertex"]]
        assert (number, phase) == (i + 1, step["phase"])
        assert heading == (vertex["node"] if phase == "backward" and vertex["node"] else vertex["name"])
        assert page.run("document.querySelectorAll('#graph g[id^=v-box].current').length") == 1
        assert page.run(f"document.getElementById('v-box{step['vertex']}').classList.contains('current')")
        if phase == "backward" and vertex["kind"] == "leaf":
            seen[vertex["name"]] = cells(page, "Gradient")
        elif phase == "forward" and vertex["values"][0]:
            assert np.array_equal(cells(page, "Value"), numbers(vertex["values"][0]))
        page.key("ArrowRight")
    assert state(page)[0] == len(data["steps"])  # it stays at the end
    assert set(seen) == set(expected)
    for parameter, grad in expected.items():
        assert np.array_equal(seen[parameter].astype(np.float32), grad.ravel()), parameter
    returned = page.run("[...document.querySelectorAll('#graph .returned[id^=v-box]')].length")
    assert returned == sum(v["kind"] != "input" for v in data["vertices"])
    assert page.errors == []
    assert page.requests == [page.run("location.href.split('#')[0]")]


@needs_chromium
def test_keys_buttons_slider_list_boxes_and_touch(browser, made):
    path = made["mlp"][0]
    last = len(data_of(path)["steps"])
    page = browser.open(path)
    for key, expected in (("End", last), ("ArrowLeft", last - 1), ("Home", 1), ("ArrowLeft", 1), ("ArrowRight", 2)):
        page.key(key)
        assert state(page)[0] == expected, key
    for button, expected in (("last", last), ("back", last - 1), ("first", 1), ("next", 2)):
        page.click(f"#{button}")
        assert state(page)[0] == expected, button
    page.run("document.getElementById('step').focus()")
    page.key("ArrowRight")
    assert state(page)[0] == 3
    page.run(
        "document.getElementById('jump').value = 0; document.getElementById('jump').dispatchEvent(new Event('change'))"
    )
    assert state(page)[0] == 1
    page.click("#v-box4")
    assert state(page)[:2] == (5, "forward")
    page.click("#last")
    page.click("#v-box4 .tg-box")
    assert state(page)[1] == "backward"
    page.click("#details .links button")
    assert state(page)[1] == "backward"
    assert page.run("document.activeElement.tagName") == "H2"  # not lost with the button
    page.call("Emulation.setTouchEmulationEnabled", enabled=True)
    page.click("#first")
    page.swipe("#details h2", -120)
    page.wait("document.getElementById('status').textContent.startsWith('Step 2 ')")
    page.swipe("#details h2", 120)
    page.wait("document.getElementById('status').textContent.startsWith('Step 1 ')")
    assert page.errors == []


@needs_chromium
def test_an_error_in_a_page_would_be_noticed(browser, tmp_path):
    path = tmp_path / "page.html"
    path.write_text("<script>setTimeout(() => { window.done = 1; nothing.there }); console.error('said')</script>")
    page = browser.open(path)
    page.wait("window.done")
    assert [e.split("\n")[0] for e in page.errors if "nothing" in e] == ["ReferenceError: nothing is not defined"]
    assert any("said" in e for e in page.errors)


@needs_chromium
def test_play_and_pause(browser, made):
    page = browser.open(made["mlp"][0])
    page.run("document.activeElement.blur()")
    page.key(" ")
    assert page.run("document.getElementById('play').textContent") == "Pause"
    page.wait("document.getElementById('status').textContent.startsWith('Step 2 ')")
    page.key(" ")
    assert page.run("document.getElementById('play').textContent") == "Play"
    page.run("document.getElementById('play').focus()")
    page.key(" ")  # handled by the button only, not by the page as well
    assert page.run("document.getElementById('play').textContent") == "Pause"
    page.key("ArrowLeft")
    assert page.run("document.getElementById('play').textContent") == "Play"
    assert page.errors == []


@needs_chromium
def test_the_address_remembers_the_step(browser, made):
    page = browser.open(made["mlp"][0], mark="step=4")
    assert state(page)[0] == 4
    page.key("ArrowRight")
    assert page.run("location.hash") == "#step=5"
    assert state(browser.open(made["mlp"][0], mark="step=999"))[0] == len(data_of(made["mlp"][0])["steps"])


@needs_chromium
def test_arrows_scroll_a_wide_table_and_step_elsewhere(browser, tmp_path):
    w = torch.full((3, 16), 0.123456, requires_grad=True)
    page = browser.open(viz.explore((w * w).sum(), tmp_path / "page.html"))
    page.run("document.querySelector('.scroll').focus()")
    page.key("ArrowRight")
    page.wait("document.querySelector('.scroll').scrollLeft > 0")
    assert state(page)[0] == 1
    page.run("document.getElementById('graph').focus()")
    page.key("ArrowRight")
    assert state(page)[0] == 2
    assert page.errors == []


@needs_chromium
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_large_tensors_become_maps_and_histograms(browser, tmp_path, dark):
    torch.manual_seed(0)
    w = torch.randn(64, 100, requires_grad=True)
    path = viz.explore(lambda: (torch.randn(33, 64) @ w).tanh().sum(), tmp_path / "page.html", names={"w": w})
    page = browser.open(path, dark=dark)
    w_digest = data_of(path)["vertices"][0]["values"][0]
    assert page.run("document.querySelectorAll('.map rect').length") == sum(map(len, w_digest["rows"]))
    assert page.run("document.querySelectorAll('.histogram rect').length") == len(w_digest["bins"])
    named = [n["name"] for n in page.tree() if n["role"] in ("image", "img")]
    assert any(n.startswith("Heat map") for n in named) and any(n.startswith("Histogram of 6400") for n in named)
    page.key("End")
    assert page.errors == []


# --- accessibility -------------------------------------------------------------------------------------------------

CONTRASTS = """(() => {
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const rgba = (text) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = text; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data] };
  const luminance = (c) => { const [r, g, b] = c.map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92
    : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b };
  const behind = (e) => {
    const box = e.closest('#graph g') && e.parentElement.querySelector('.tg-box');
    if (e.tagName === 'text' && box) return rgba(getComputedStyle(box).fill);
    for (; e; e = e.parentElement) {
      const c = rgba(getComputedStyle(e).backgroundColor);
      if (c[3] === 255) return c;
    }
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const e = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || !e.getClientRects().length) continue;
    if (e.closest('script, style, title, desc')) continue;
    const style = getComputedStyle(e);
    const [a, b] = [luminance(rgba(e.tagName === 'text' ? style.fill : style.color)), luminance(behind(e))];
    found.push([(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), walker.currentNode.textContent.trim().slice(0, 40)]);
  }
  return found;
})()"""


@needs_chromium
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_all_text_has_enough_contrast(browser, made, dark):
    page = browser.open(made["mlp"][0], dark=dark)
    background = page.run("getComputedStyle(document.body).backgroundColor")
    assert background == ("rgb(21, 24, 29)" if dark else "rgb(255, 255, 255)")
    for key in ("Home", "End", "ArrowLeft", "ArrowLeft"):
        page.key(key)
        found = page.run(CONTRASTS)
        assert len(found) > 60
        assert min(found)[0] >= 4.5, min(found)


@needs_chromium
def test_the_page_in_a_screen_reader(browser, made):
    page = browser.open(made["mlp"][0], mark="step=12")
    assert page.run("document.documentElement.lang") == "en" and page.run("document.title")
    levels = page.run("[...document.querySelectorAll('h1,h2,h3,h4')].map(h => Number(h.tagName[1]))")
    assert levels.count(1) == 1 and levels[0] == 1 and all(b <= a + 1 for a, b in pairwise(levels))
    tree = page.tree()
    for node in tree:
        if node["role"] in ("button", "slider", "combobox", "image", "img", "table", "group", "region", "article"):
            assert node["name"], node
    roles = [n["role"] for n in tree]
    assert {
        "banner",
        "main",
        "contentinfo",
        "status",
        "slider",
        "combobox",
        "table",
        "columnheader",
        "rowheader",
    } <= set(roles)
    slider = next(n for n in tree if n["role"] == "slider")
    assert slider["name"] == "Step"
    assert page.run("document.getElementById('step').getAttribute('aria-valuetext')").startswith("step 12 of ")
    (status,) = [n for n in tree if n["role"] == "status"]
    assert status["properties"]["live"] == "polite"
    before = page.run("document.getElementById('status').textContent")
    page.key("ArrowRight")
    assert page.run("document.getElementById('status').textContent") != before
    graph = next(n for n in tree if n["role"] in ("image", "img") and n["name"].startswith("Graph of"))
    assert "linear of x, 0.weight, 0.bias" in graph["description"]
    ids = page.run("[...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))


@needs_chromium
def test_everything_is_reached_by_the_tab_key_in_reading_order(browser, made):
    page = browser.open(made["mlp"][0], mark="step=12")
    wanted = page.run("""[...document.querySelectorAll('button, input, select, [tabindex="0"]')].length""")
    page.run("window.reached = []; document.addEventListener('focusin', (e) => reached.push(e.target))")
    for _ in range(wanted):
        page.key("Tab")
    assert page.run("new Set(reached).size") == wanted
    assert page.run("reached.every((e, i) => !i || reached[i - 1].compareDocumentPosition(e) & 4)")
    outlines = page.run("reached.slice(-1).map(e => getComputedStyle(e).outlineStyle)")
    assert outlines == ["solid"]


@needs_chromium
def test_a_phone_shows_everything_without_scrolling_sideways(browser, made):
    page = browser.open(made["mlp"][0], width=360, height=740, mark="step=12")
    assert page.run("document.documentElement.scrollWidth") <= 360
    small = page.run("""[...document.querySelectorAll('button, input, select')].map(e => e.getBoundingClientRect())
        .filter(b => b.height < 44 || b.width < 24).length""")
    assert small == 0
    assert page.errors == []


@needs_chromium
@pytest.mark.skipif("AXE" not in os.environ, reason="AXE does not name a file axe.min.js (package axe-core of npm)")
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_nothing(browser, made, dark):
    page = browser.open(made["mlp"][0], dark=dark, mark="step=12")
    page.call("Runtime.evaluate", expression=Path(os.environ["AXE"]).read_text("utf-8"))
    found = page.run("axe.run().then(r => r.violations.map(v => [v.id, v.nodes.map(n => n.html)]))")
    assert found == []
