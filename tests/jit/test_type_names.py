"""The classes of types of programs: their texts, and which is part of which."""

import importlib

from tests.support.alike import alike


def types(torch):
    return torch._C if torch.__name__ == "torch" else importlib.import_module("tensorgrad.jit.type_names")


def several(c):
    plain = [
        getattr(c, f"{name}Type").get()
        for name in (
            "Any",
            "Bool",
            "Complex",
            "DeviceObj",
            "Float",
            "Int",
            "None",
            "Number",
            "StreamObj",
            "String",
            "Tensor",
        )
    ]
    nested = [
        c.ListType(c.IntType.get()), c.ListType.ofTensors(), c.OptionalType(c.FloatType.get()),
        c.TupleType([c.IntType.get(), c.TensorType.get()]), c.TupleType([]),
        c.DictType(c.StringType.get(), c.ListType.ofInts()), c.ListType(c.OptionalType.ofTensor()),
    ]  # fmt: skip
    return plain + nested


@alike
def test_texts_and_kinds(torch):
    return [(t.annotation_str, str(t), t.str(), t.kind(), repr(t)) for t in several(types(torch))]


@alike
def test_equal_types_and_those_within_others(torch):
    c = types(torch)
    given = several(c)
    same = [[a == b for b in several(c)] for a in given]
    within = [[a.isSubtypeOf(b) for b in given] for a in given]
    return same, within


@alike
def test_what_types_are_made_of(torch):
    c = types(torch)
    pair = c.TupleType([c.IntType.get(), c.TensorType.get()])
    table = c.DictType(c.StringType.get(), c.FloatType.get())
    return (
        [str(t) for t in pair.elements()], str(c.ListType.ofFloats().getElementType()), str(table.getKeyType()),
        str(table.getValueType()), c.TensorType.get() is not None, str(c.TensorType.getInferred()),
    )  # fmt: skip
