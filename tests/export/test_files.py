"""`torch.export.save` and `load`: PyTorch's files, both ways; damaged and hostile files are one clear error."""

import copy
import io
import json
import random
import zipfile

import numpy as np
import pytest

import tensorgrad as torch
from tensorgrad import nn
from tensorgrad.utils._pytree import tree_leaves
from tests.capture.compare import bits
from tests.export.models import make
from tests.export.test_export import DYNAMIC, Function, exported
from tests.support.alike import HAS_TORCH

NAMES = list(make(torch))
NEEDS_TORCH = pytest.mark.skipif(not HAS_TORCH, reason="torch, which reads or writes the file, is not installed")


def saved(program, library=torch):
    file = io.BytesIO()
    library.export.save(program, file)
    file.seek(0)
    return file


def values(result):
    return [np.array(v.detach()) if hasattr(v, "detach") else v for v in result]


@pytest.mark.parametrize("core", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_what_is_saved_is_what_is_loaded(name, core):
    module, args, kwargs = make(torch)[name]
    program = torch.export.export(module, copy.deepcopy(args), kwargs)
    program = program.run_decompositions() if core else program
    loaded = torch.export.load(saved(program))
    assert str(loaded.graph_signature) == str(program.graph_signature)
    assert loaded.graph_module.code == program.graph_module.code and loaded.dialect == program.dialect
    assert all(torch.equal(v, program.state_dict[k]) for k, v in loaded.state_dict.items())
    torch.manual_seed(0)
    found = [bits(v) for v in tree_leaves(loaded.module()(*copy.deepcopy(args), **kwargs))]
    torch.manual_seed(0)
    assert found == [bits(v) for v in tree_leaves(program.module()(*copy.deepcopy(args), **kwargs))]
    if not core:
        again = loaded.run_decompositions().graph_module.code
        assert again == program.run_decompositions().graph_module.code


def dynamic(name):
    function, example, others, shapes = DYNAMIC[name]
    module = function if isinstance(function, nn.Module) else Function(function)
    if not isinstance(function, nn.Module) and isinstance(shapes, tuple):
        shapes = (shapes,)
    program = torch.export.export(module, tuple(torch.randn(*s) for s in example), dynamic_shapes=shapes)
    return module, program, [tuple(torch.randn(*s) for s in sizes) for sizes in others]


@pytest.mark.parametrize("name", DYNAMIC)
def test_dynamic_sizes_are_saved(name):
    module, program, others = dynamic(name)
    loaded = torch.export.load(saved(program))
    assert str(loaded.range_constraints) == str(program.range_constraints)
    for args in others:
        found, wanted = (values(tree_leaves(m(*args))) for m in (loaded.module(), module))
        assert [np.array(v).tobytes() for v in found] == [np.array(v).tobytes() for v in wanted]
    with pytest.raises(AssertionError, match="Guard failed"):
        loaded.module()(*(a[..., None] for a in others[0]))


@NEEDS_TORCH
@pytest.mark.parametrize("core", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_torch_reads_what_is_saved_here(name, core):
    import torch as pytorch

    module, args, kwargs = make(torch)[name]
    program = torch.export.export(module, copy.deepcopy(args), kwargs)
    read = pytorch.export.load(saved(program.run_decompositions() if core else program))
    theirs = [pytorch.from_numpy(np.array(a)) for a in args]
    if "training" in name:  # random numbers are drawn from another generator
        read.module()(*theirs, **kwargs)
        return
    found = pytorch.utils._pytree.tree_leaves(read.module()(*theirs, **kwargs))
    expected = tree_leaves(module(*copy.deepcopy(args), **kwargs))
    for a, b in zip(values(found), values(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@NEEDS_TORCH
@pytest.mark.parametrize("name", ["MLP", "a convolution", "an encoder", "arithmetic", "two that are one", "derived"])
def test_torch_reads_dynamic_sizes(name):
    import torch as pytorch

    module, program, others = dynamic(name)
    read = pytorch.export.load(saved(program)).module()
    for args in others:
        found = pytorch.utils._pytree.tree_leaves(read(*(pytorch.from_numpy(np.array(a)) for a in args)))
        for a, b in zip(values(found), values(tree_leaves(module(*args))), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@NEEDS_TORCH
@pytest.mark.parametrize("name", NAMES)
def test_what_torch_saves_is_read_here(name):
    import torch as pytorch

    module, args, kwargs = make(pytorch)[name]
    program = pytorch.export.export(module, copy.deepcopy(args), kwargs)
    ours = [torch.from_numpy(a.numpy().copy()) for a in args]
    for version in (program, program.run_decompositions()):
        loaded = torch.export.load(saved(version, pytorch))
        assert [str(s) for s in loaded.graph_signature.input_specs] == [
            str(s) for s in version.graph_signature.input_specs
        ]
        found = tree_leaves(loaded.module()(*copy.deepcopy(ours), **kwargs))
        if "training" in name:
            continue
        expected = pytorch.utils._pytree.tree_leaves(version.module()(*copy.deepcopy(args), **kwargs))
        for a, b in zip(values(found), values(expected), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@NEEDS_TORCH
def test_dynamic_sizes_that_torch_saves():
    import torch as pytorch

    class Model(pytorch.nn.Module):
        def forward(self, x, y):
            return pytorch.cat([x, y]).flatten() * x.shape[0] ** 0.5, x.reshape(x.shape[0] * 2, -1)

    Dim = pytorch.export.Dim
    a, b = Dim("a", max=20), Dim("b")
    given = pytorch.randn(3, 4), pytorch.randn(5, 4)
    program = pytorch.export.export(Model(), given, dynamic_shapes=({0: a}, {0: b}))
    loaded = torch.export.load(saved(program, pytorch))
    x, y = torch.randn(7, 4), torch.randn(2, 4)
    found = loaded.module()(x, y)
    assert torch.equal(found[0], torch.cat([x, y]).flatten() * 7**0.5) and found[1].shape == (14, 2)
    assert [r.upper for r in loaded.range_constraints.values()] == [20, None]
    with pytest.raises(AssertionError, match="Guard failed"):
        loaded.module()(torch.randn(21, 4), y)


@NEEDS_TORCH
def test_torch_reads_numbers_that_are_chosen_and_repeated():
    import torch as pytorch

    def program(m, x, n):
        chosen = torch.where(m, x, -3.0), torch.where(m, 2.0, x), torch.where(m, 1.0, 0.0), torch.where(m, x, x + 1)
        repeated = x.repeat_interleave(2, 0), torch.repeat_interleave(x, 3, dim=1), x.repeat_interleave(repeats=2)
        return (*chosen, *repeated, x.repeat_interleave(n, 0))

    given = torch.tensor([True, False]), torch.randn(2, 2), torch.tensor([1, 3])
    read = pytorch.export.load(saved(exported(program, *given)))
    found = read.module()(*[pytorch.from_numpy(t.numpy().copy()) for t in given])
    assert [t.tolist() for t in found] == [t.tolist() for t in program(*given)]


@NEEDS_TORCH
def test_operators_on_bits_that_torch_saves():
    import torch as pytorch

    class Bits(pytorch.nn.Module):
        def forward(self, a, b, mask):
            c, d, e = a.clone(), a.clone(), mask.clone()
            c &= b
            c |= 8
            d ^= b
            d <<= 2
            d >>= b
            e &= a > 1
            return a & b, a | b, a ^ b, a & 3, a | 4, a ^ 5, a << b, a >> 1, a << 1, a >> b, mask & (a > 2), c, d, e

    given = pytorch.tensor([1, 6, 12]), pytorch.tensor([3, 2, 1]), pytorch.tensor([True, False, True])
    program = pytorch.export.export(Bits(), given)
    names = {str(n.target) for n in program.graph.nodes}
    assert {"aten.__and__.Tensor", "aten.__ilshift__.Scalar", "aten.__rshift__.Scalar"} <= names
    loaded = torch.export.load(saved(program, pytorch))
    found = loaded.module()(*[torch.from_numpy(t.numpy().copy()) for t in given])
    expected = Bits()(*given)
    assert [t.tolist() for t in found] == [t.tolist() for t in expected]
    again = pytorch.export.load(saved(loaded)).module()(*given)
    assert [t.tolist() for t in again] == [t.tolist() for t in expected]


# --- files -----------------------------------------------------------------------------------------------------------


def test_paths_and_extra_files(tmp_path):
    program = torch.export.export(nn.Linear(2, 1), (torch.ones(1, 2),))
    path = tmp_path / "model.pt2"
    torch.export.save(program, path, extra_files={"note.txt": "a note"})
    extra = {"note.txt": None}
    loaded = torch.export.load(path, extra_files=extra)
    assert extra == {"note.txt": "a note"} and loaded.example_inputs[0][0].shape == (1, 2)
    assert zipfile.ZipFile(path).testzip() is None
    weight = loaded.state_dict["weight"]
    assert isinstance(weight, nn.Parameter) and weight.requires_grad


def test_tied_weights_stay_tied():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Linear(2, 2), nn.Linear(2, 2)
            self.two.weight = self.one.weight

        def forward(self, x):
            return self.two(self.one(x))

    file = saved(torch.export.export(Tied(), (torch.ones(1, 2),)))
    assert len([n for n in zipfile.ZipFile(file).namelist() if "/weight_" in n]) == 3
    state = torch.export.load(file).state_dict
    assert state["one.weight"].data_ptr() == state["two.weight"].data_ptr()


def test_a_failed_save_leaves_the_old_file(tmp_path):
    path = tmp_path / "model.pt2"
    path.write_bytes(b"old")
    program = exported(lambda x: torch.fft.rfft(x).abs(), torch.ones(4))
    with pytest.raises(NotImplementedError, match=r"not an operator of PyTorch's registry \(File.*test_files"):
        torch.export.save(program, path)
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]
    with pytest.raises(TypeError, match="ExportedProgram"):
        torch.export.save(nn.ReLU(), path)


# --- hostile files ---------------------------------------------------------------------------------------------------


def entries_of(file):
    archive = zipfile.ZipFile(file)
    return {name: archive.read(name) for name in archive.namelist()}


def made(entries):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in entries.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    file.seek(0)
    return file


def sample():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.ReLU())
    return entries_of(saved(torch.export.export(model, (torch.ones(2, 3),))))


def edited(change, entry="archive/models/model.json"):
    entries = sample()
    data = json.loads(entries[entry])
    change(data)
    return made({**entries, entry: json.dumps(data).encode()})


def graph(data):
    return data["graph_module"]["graph"]


def weights(name, **values):
    def change(data):
        data["config"][name]["tensor_meta"].update(values)

    return edited(change, "archive/data/weights/model_weights_config.json")


def node(**values):
    return edited(lambda d: graph(d)["nodes"][1].update(values))


HOSTILE = {
    "a function of the system": lambda: node(target="os.system"),
    "a method of torch": lambda: node(target="torch.load"),
    "an operator that reads files": lambda: node(target="torch.ops.aten.from_file.default"),
    "an operator that is not here": lambda: node(target="torch.ops.aten.no_such.default"),
    "a namespace that is not here": lambda: node(target="torch.ops.prims.convert.default"),
    "a name that is code": lambda: node(name="x = __import__('os')"),
    "a dunder": lambda: node(name="__class__"),
    "a cycle": lambda: edited(
        lambda d: graph(d)["nodes"][0]["inputs"][0].update(arg={"as_tensor": {"name": graph(d)["nodes"][-1]["name"]}})
    ),
    "two nodes of a name": lambda: edited(lambda d: graph(d)["nodes"].append(graph(d)["nodes"][0])),
    "a keyword that is code": lambda: edited(lambda d: graph(d)["nodes"][0]["inputs"][0].update(name="a)(", kind=2)),
    "an argument of two kinds": lambda: edited(
        lambda d: graph(d)["nodes"][0]["inputs"][0].update(arg={"as_int": 1, "as_float": 2.0})
    ),
    "a graph as an argument": lambda: edited(
        lambda d: graph(d)["nodes"][0]["inputs"][0].update(arg={"as_graph": {"name": "g", "graph": {}}})
    ),
    "an output that is not there": lambda: edited(lambda d: graph(d)["outputs"].append({"as_tensor": {"name": "no"}})),
    "a parameter over a method": lambda: edited(
        lambda d: d["graph_module"]["signature"]["input_specs"][0]["parameter"].update(parameter_name="forward")
    ),
    "another format": lambda: edited(lambda d: d["schema_version"].update(major=9)),
    "a structure of a class": lambda: edited(
        lambda d: d["graph_module"]["module_call_graph"][0]["signature"].update(
            in_spec='[1, {"type": "subprocess.Popen", "context": "null", "children_spec": []}]'
        )
    ),
    "a structure of another size": lambda: edited(
        lambda d: d["graph_module"]["module_call_graph"][0]["signature"].update(
            out_spec='[1, {"type": "builtins.tuple", "context": "null", "children_spec": []}]'
        )
    ),
    "a size that is code": lambda: edited(
        lambda d: graph(d)["tensor_values"]["linear"]["sizes"].append({"as_expr": {"expr_str": "().__class__"}})
    ),
    "a weight beyond its memory": lambda: weights("0.weight", sizes=[{"as_int": 4}, {"as_int": 4}]),
    "a weight of huge steps": lambda: weights("0.weight", strides=[{"as_int": 1 << 39}, {"as_int": 1}]),
    "a negative size": lambda: weights("0.weight", sizes=[{"as_int": -4}, {"as_int": 3}]),
    "a size beyond all numbers": lambda: weights("0.weight", sizes=[{"as_int": 1 << 80}, {"as_int": 3}]),
    "an unknown dtype": lambda: weights("0.weight", dtype=99),
    "an offset": lambda: weights("0.weight", storage_offset={"as_int": 5}),
    "a path out of the folder": lambda: edited(
        lambda d: d["config"]["0.weight"].update(path_name="../weights/weight_0"),
        "archive/data/weights/model_weights_config.json",
    ),
    "a pickle": lambda: made(
        {**sample(), "archive/data/sample_inputs/model.pt": b"cos\nsystem\n(S'true'\ntR."}
    ),
    "no model": lambda: made({k: v for k, v in sample().items() if "models/" not in k}),
    "two models": lambda: made({**sample(), "archive/models/other.json": b"{}"}),
    "nested without end": lambda: made({**sample(), "archive/models/model.json": b"[" * 100_000}),
    "no JSON": lambda: made({**sample(), "archive/models/model.json": b"\xff{"}),
    "big-endian": lambda: made({**sample(), "archive/byteorder": b"big"}),
    "no archive": lambda: io.BytesIO(b"PK\x03\x04" + bytes(100)),
    "a checkpoint": lambda: checkpoint(),
}  # fmt: skip


def checkpoint():
    file = io.BytesIO()
    torch.save({"a": torch.ones(2)}, file)
    file.seek(0)
    return file


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused(name):
    with pytest.raises(RuntimeError, match=r"export\.load\(\): the file cannot be loaded as a program: .") as caught:
        torch.export.load(HOSTILE[name]())
    assert len(str(caught.value)) < 700


def places(value, path=()):
    """All places in a nested value."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


JUNK = (
    None,
    True,
    -1,
    1 << 70,
    0.5,
    "",
    "__import__",
    "x",
    [],
    {},
    [[]],
    {"as_int": "x"},
    {"as_tensor": {"name": "x"}},
)


def test_changed_values_never_do_more_than_raise():
    """Values anywhere in the graph are changed: the file is refused, or is a program that runs or raises."""
    entries, rng = sample(), random.Random(0)
    for entry in ("archive/models/model.json", "archive/data/weights/model_weights_config.json"):
        original = json.loads(entries[entry])
        for path in rng.sample(found := list(places(original)), min(120, len(found))):
            data = copy.deepcopy(original)
            if not path:
                continue
            owner = data
            for key in path[:-1]:
                owner = owner[key]
            owner[path[-1]] = rng.choice(JUNK)
            try:
                program = torch.export.load(made({**entries, entry: json.dumps(data).encode()}))
            except RuntimeError as error:
                assert str(error).startswith("export.load()")
                continue
            try:
                program.module()(torch.ones(2, 3))
            except (RuntimeError, TypeError, ValueError, IndexError, AssertionError):
                continue


def test_changed_bytes_are_refused():
    file = saved(torch.export.export(nn.Linear(3, 2), (torch.ones(2, 3),))).getvalue()
    rng = random.Random(0)
    for _ in range(150):
        damaged = bytearray(file[: rng.randrange(len(file))] if rng.random() < 0.3 else file)
        for _ in range(rng.randrange(1, 4)):
            if damaged:
                damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        try:
            torch.export.load(io.BytesIO(bytes(damaged)))
        except RuntimeError as error:
            assert str(error).startswith("export.load()")


def test_names_of_modules_may_have_hyphens():
    module = nn.ModuleDict({"block1-0": nn.Linear(2, 2)})
    module.forward = lambda x: module["block1-0"](x)
    program = torch.export.export(module, (torch.ones(1, 2),))
    assert torch.equal(torch.export.load(saved(program)).module()(torch.ones(1, 2)), module(torch.ones(1, 2)))
