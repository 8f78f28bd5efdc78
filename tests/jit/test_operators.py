"""The operators that programs call take their arguments in the order of PyTorch's schemas."""

import inspect
from collections import defaultdict

import pytest

import tensorgrad as tg
from tensorgrad import _ops
from tensorgrad.jit import operators

# Overloads with another order, which programs do not call: of lists and numbers, or with a dtype that is out of place.
OTHERS = {"addmm.dtype", "baddbmm.dtype", "bmm.dtype", "mm.dtype", "nuclear_norm", "index.list_bool",
          "index.list_Tensor", "index.list_str", "eq.Tensor_list", "ne.Tensor_list", "dequantize.list",
          "dequantize.tensor", "dequantize.tensors", "ldexp", "sort.Tensor", "sort.bool", "sort.str"}  # fmt: skip
RENAMED = {"self": "input", "tensor": "input", "a": "input", "axis0": "dim0", "axis1": "dim1", "split_size": "sizes",
           "split_sizes": "sizes", "split_size_or_sections": "sizes", "indices_or_sections": "parts",
           "tensor_indices_or_sections": "parts", "indices": "parts", "sections": "parts", "value": "src",
           "test_element": "test_elements", "tensor1": "input", "tensor2": "other", "separator": "sizes"}  # fmt: skip


def test_arguments_are_in_the_order_of_the_schemas():
    torch = pytest.importorskip("torch", reason="torch has the schemas")
    schemas = defaultdict(list)
    for schema in torch._C._jit_get_all_schemas():
        if schema.name.startswith("aten::") and "Tensor" in str(schema.arguments[0].type if schema.arguments else ""):
            schemas[schema.name[6:]].append(schema)
    wrong, checked = [], 0
    for name in {*_ops._overloads(), *operators.MORE} - set(operators.WRITTEN_OTHERWISE) - operators.EXCLUDED:
        signature = inspect.signature(_ops._function(name))
        kinds = {p.kind for p in signature.parameters.values()}
        ours = [RENAMED.get(p.name, p.name) for p in signature.parameters.values() if p.kind in (0, 1)]
        for schema in schemas[name] if inspect.Parameter.VAR_POSITIONAL not in kinds else ():
            full = f"{name}.{schema.overload_name}".rstrip(".")
            dimnames = any("Dimname" in str(a) or (a.name == "dim" and str(a.type) == "str") for a in schema.arguments)
            if dimnames or any(a.is_out for a in schema.arguments) or full in OTHERS:
                continue
            theirs = [RENAMED.get(a.name, a.name) for a in schema.arguments if not a.kwarg_only]
            checked += 1
            if theirs != ours[: len(theirs)]:
                wrong.append((full, theirs, ours))
    assert checked > 500
    assert not wrong, "\n".join(map(str, sorted(wrong)))


def test_operators_that_do_not_exist_say_so():
    for path in ("torch.nothing", "ops.prim.nothing", "ops.aten.load", "torch.from_file", "ops.torch.nothing"):
        with pytest.raises(NotImplementedError, match="does not have this operator"):
            operators.find(path, 10)(tg.ones(1))


def test_forms_of_operators():
    x = tg.tensor([[1.0, 2.0], [3.0, 4.0]])

    def run(name, *args, **named):
        return operators.find(f"torch.{name}", 10)(*args, **named)

    assert run("add", x, 1, 2).tolist() == [[3, 4], [5, 6]] and run("rsub", x, 1, 2).tolist() == [[-1, -3], [-5, -7]]
    assert run("add", 1, 2) == 3 and run("add", [1], [2]) == [1, 2] and run("add", "a", "b") == "ab"
    assert run("max", x, tg.zeros(2, 2)).tolist() == x.tolist() and run("max", x).item() == 4
    assert [t.tolist() for t in run("max", x, 0)] == [[3, 4], [1, 1]] and run("max", [1, 3]) == 3
    assert run("to", x, 7).dtype == run("to", x, tg.device("cpu"), 7).dtype == tg.float64
    assert run("to", x, tg.ones(1, dtype=tg.int32)).dtype == run("to", x, dtype=3).dtype == tg.int32
    assert run("to", x, None, 5, False, True).dtype == tg.float16 and run("to", x, 6, False, True) is not x
    assert run("max_pool2d", x[None], [2, 2], []).tolist() == [[[4]]]
    assert run("avg_pool2d", x[None], [2, 2], []).tolist() == [[[2.5]]]
    assert run("std", x, True).item() == x.std().item() and run("var", x, [0], False, True).tolist() == [[1, 1]]
    assert run("size", x) == [2, 2] and run("size", x, 1) == 2 and type(run("chunk", x, 2)) is list
    assert run("sum", x, dtype=4).dtype == tg.int64 and run("softmax", x, 0, 7).dtype == tg.float64
    assert run("zeros", [2], dtype=None, layout=0, device=None, pin_memory=False).shape == (2,)
    assert run("slice", [1, 2, 3], 1) == [2, 3] and run("slice", x, 1, 1).tolist() == [[2], [4]]
    assert run("floor", 2.5) == 2 and type(run("floor", 2.5)) is int and run("div", 7, 2) == 3.5
    y = x.clone()
    assert run("index_put_", y, [None, tg.tensor([0])], tg.tensor(9.0)) is y and y.tolist() == [[9, 2], [9, 4]]
    run("index_put_", y, [None, tg.tensor([0, 0])], tg.ones(2, 2), True)
    assert y.tolist() == [[11, 2], [11, 4]]
    assert run("scatter", x, 1, tg.tensor([[0], [1]]), 5.0).tolist() == [[5, 2], [3, 5]]
    assert run("copy_", x.clone(), 2).tolist() == [[2, 2], [2, 2]]
    assert run("format", "{} and {}", 1, "x") == "1 and x" and run("__contains__", [1, 2], 2) is True
    assert operators.find("ops.prim.NumToTensor", 10)(2.5).dtype == tg.float64
    assert operators.find("torch.div", 3)(tg.tensor([-3]), 2).tolist() == [-1]
    assert operators.find("torch.full", 4)([1], 1).dtype == tg.float32
    assert len(operators.find("torch.linspace", 7)(0, 1)) == 100
