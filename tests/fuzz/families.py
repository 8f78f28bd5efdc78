"""The table of families: which kernels a random call reaches, and the function that makes the call.

A maker takes a `Draw`, makes the arrays with it and returns the call as text. In that text, `torch` and `F` are
tensorgrad's, `inf` is infinity, arrays are referred to by name, and other functions are those of calls.py. `rows` are
the names from kernels/compiled/table.py and kernels/cuda/table.py that the family covers. A test checks that every row
of both tables has a family, and that the family's calls reach it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import NamedTuple

import tensorgrad as torch
from tests.fuzz.cases import LAYOUTS, Draw


class Family(NamedTuple):
    """A maker, the rows it reaches on the CPU and on a GPU, and how results are compared."""

    make: Callable[[Draw], str]
    rows: tuple[str, ...]
    cuda: tuple[str, ...] = ()  # rows that exist only on a GPU
    special: tuple[str, ...] = ("special",)  # special values: nan, infinities, and values at a dtype's limits
    loose: float = 1.0  # factor for the tolerance, for families with longer sums
    claims: bool = False  # whether its results are claims that must be true, as random numbers differ on a GPU
    sums: bool = False  # multiplies infinities and zeros, so only finite results are compared


VARIED = tuple(layout for layout in LAYOUTS if "expanded" not in layout)  # layouts of arrays whose values differ
INFINITE = ("infinite",)  # without values at a dtype's limits, where overflow depends on the order of a sum


def words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# --- element by element ----------------------------------------------------------------------------------------------

UNARY = words(
    "neg abs sqrt reciprocal log log2 log10 log1p expm1 exp2 tanh sin cos square exp sigmoid erf relu rsqrt silu mish "
    "logsigmoid hardsigmoid hardswish logical_not"
)


def unary(d: Draw) -> str:
    name = d.one(*UNARY)
    d.ways = {"halves._FEWEST": 0}
    x = d.array(d.any_shape(), "bool" if name == "logical_not" and d.chance(0.7) else None)
    if not hasattr(torch, name):
        return f"F.{name}({x})"
    if d.device == "cpu" and name != "logical_not" and d.chance(0.1):
        return f"torch.{name}({x}, out=torch.empty_like({x}.detach())).detach()" if not d.arrays[x].grad else (
            f"torch.{name}({x})"
        )  # fmt: skip
    return f"torch.{name}({x})"


def settings(d: Draw) -> str:
    d.ways = {"halves._FEWEST": 0}
    x = d.array(d.any_shape())
    a, b = round(d.random.uniform(-1, 1), 2), round(d.random.uniform(0.1, 2), 2)
    return d.one(
        f"F.gelu({x})", f"F.gelu({x}, approximate='tanh')", f"torch.clamp({x}, {a}, {a + b})",
        f"torch.clamp({x}, min={a})", f"F.threshold({x}, {a}, {b})", f"F.leaky_relu({x}, {b})",
        f"F.hardshrink({x}, {b})", f"F.softshrink({x}, {b})", f"F.softplus({x}, {b}, 2.0)", f"F.elu({x}, {b})",
        f"F.selu({x})", f"F.celu({x}, {b})", f"F.hardtanh({x}, {a}, {a + b})", f"F.relu6({x})",
    )  # fmt: skip


def power(d: Draw) -> str:
    x = d.array(d.any_shape(), values=d.one("normal", "positive", "whole"))
    return f"{x} ** {d.one(2, 0.5, 3, -1, -0.5, 2, 0.5, 1.5, -2, 0, 1)}"


def quotients(d: Draw) -> str:
    """What is not smooth, or needs care at the largest numbers; the divisors are not 0."""
    name = d.one("remainder", "floor_divide", "floor", "copysign", "hypot")
    smooth = name in ("copysign", "hypot")
    shape = d.any_shape()
    x = d.array(shape, grad=smooth)
    y = d.array(d.like(shape), values=d.one("normal", "whole") if smooth else "positive", grad=smooth)
    return f"torch.div({x}, {y}, rounding_mode='floor')" if name == "floor" else f"torch.{name}({x}, {y})"


COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


def binary(d: Draw) -> str:
    d.ways = {"halves._FEWEST": 0}
    name = d.one("add", "sub", "mul", "div", "maximum", "minimum", *COMPARISONS)
    shape = d.any_shape()
    x = d.array(shape)
    way = d.one("same", "broadcast", "number", "both", "reversed")
    if way == "number" and name not in ("maximum", "minimum"):
        number = d.one(2.5, -3, 0, 1, 0.1)
        if name in ("sub", "div") and d.chance(0.5):
            return f"{number} - {x}" if name == "sub" else f"{number} / {x}"
        return f"torch.{name}({x}, {number})"
    y = d.array(shape if way in ("same", "number") else d.like(shape))
    if way == "both" and len(shape) > 1:
        y = d.array((*shape[:-1], 1))
    if way == "reversed":
        x, y = y, x
    return f"torch.{name}({x}, {y})"


def truth(d: Draw) -> str:
    shape = d.any_shape()
    dtype = "bool" if d.chance(0.8) else None
    return f"torch.{d.one('logical_and', 'logical_or')}({d.array(shape, dtype)}, {d.array(shape, dtype)})"


def choices(d: Draw) -> str:
    shape = d.any_shape()
    mask, x = d.array(shape if d.chance(0.6) else d.like(shape), "bool"), d.array(shape)
    if d.chance(0.5):
        return f"{x}.masked_fill({mask}, {d.one(0, -1.5, '-inf', 1e4)})"
    other = d.one(d.array(d.like(shape)), "0.0", "-2.5")
    return f"torch.where({mask}, {x}, {other})" if d.chance(0.7) else f"torch.where({mask}, {other}, {x})"


def ternary(d: Draw) -> str:
    shape = d.any_shape()
    x, y, z = d.array(shape), d.array(d.like(shape)), d.array(d.like(shape))
    return d.one(
        f"torch.addcmul({x}, {y}, {z}, value=0.5)", f"torch.addcdiv({x}, {y}, {z})", f"torch.lerp({x}, {y}, 0.3)",
        f"torch.lerp({x}, {y}, {z})", f"torch.clamp({x}, {y}, {z})",
    )  # fmt: skip


# --- along dimensions ------------------------------------------------------------------------------------------------


def sums(d: Draw) -> str:
    shape = d.any_shape()
    x, dim, keep = d.array(shape), d.dims(shape), d.one(True, False)
    name = d.one("sum", "sum", "mean", "norm", "var", "std", "var_mean", "std_mean", "logsumexp", "prod")
    if name == "prod":  # products of small and large numbers depend on the order
        d.arrays[x] = replace(d.arrays[x], values=d.one("whole", "ones", "positive"))
    if name == "norm":
        return f"torch.linalg.vector_norm({x}, {d.one(2, 1, 0, 3, 0.5, 'inf')}, {dim}, {keep})"
    if name.startswith(("var", "std", "sum", "mean")) and d.arrays[x].values == "special":
        # At a dtype's limits, the distance of two numbers overflows, and whether a sum does depends on its order.
        d.arrays[x] = replace(d.arrays[x], values="infinite")
    if name.startswith(("var", "std")):
        return f"torch.{name}({x}, {dim}, correction={d.one(0, 1)}, keepdim={keep})"
    if name == "prod" or (name == "logsumexp" and dim == "None"):
        return f"torch.{name}({x}, {d.dim(shape)}, {keep})" if d.chance(0.7) else f"torch.prod({x})"
    return f"torch.{name}({x}, {dim}, {keep})"


def extremes(d: Draw) -> str:
    shape = d.any_shape()
    x, name = d.array(shape), d.one("max", "min")
    dim, keep = d.dim(shape), d.one(True, False)
    return d.one(
        f"torch.{name}({x})", f"torch.{name}({x}, {dim}, {keep})", f"torch.a{name}({x}, {d.dims(shape)}, {keep})"
        .replace("None", "()"), f"torch.arg{name}({x}, {dim}, {keep})", f"torch.arg{name}({x})",
    )  # fmt: skip


def truths(d: Draw) -> str:
    shape = d.any_shape()
    return f"torch.{d.one('any', 'all')}({d.array(shape, d.one('bool', None, 'int32'))}, {d.dim(shape)})"


def scans(d: Draw) -> str:
    shape = d.any_shape()
    return f"torch.cumsum({d.array(shape)}, {d.dim(shape)})"


def largest(d: Draw) -> str:
    shape = d.any_shape() or (9,)
    dim = d.dim(shape)
    k = d.random.randint(0, max(0, shape[dim] // 2)) if d.chance(0.8) else shape[dim]
    # Any of several equal elements may be chosen, so only the values and the elements at the indices are compared.
    # There is no gradient, since it would flow to the chosen elements.
    x = d.array(shape, grad=False)
    return f"chosen({x}, {dim}, torch.topk({x}, {k}, {dim}, {d.one(True, False)}))"


def softmaxes(d: Draw) -> str:
    shape = d.any_shape()
    dim = d.dim(shape) if d.chance(0.4) else -1
    return f"F.{d.one('softmax', 'log_softmax')}({d.array(shape)}, {dim})"


def parameter(d: Draw, shape: tuple, dtype: str | None = None) -> str:
    """Adds a weight or bias with values of about one (so that cancellation leaves little rounding error), or None."""
    return d.maybe(shape, 0.6, dtype=dtype, values=d.one("normal", "normal", "whole", "ones"))


def of_parameters(d: Draw) -> str:
    """Returns a dtype for the parameters of a norm: beside two bytes, float32 most of the time."""
    return "float32" if d.dtype in ("float16", "bfloat16") and d.chance(0.7) else d.dtype


# --- normalization ---------------------------------------------------------------------------------------------------


def layer_norms(d: Draw) -> str:
    shape = d.shape(d.one(1, 2, 2, 3, 4), low=1)
    inner = shape[-d.random.randint(1, min(2, len(shape))) :]
    x, name = d.array(shape), d.one("layer_norm", "layer_norm", "rms_norm")
    kind = of_parameters(d)
    parameters = [parameter(d, inner, kind) for _ in range(2 if name == "layer_norm" else 1)]
    return f"F.{name}({x}, {inner}, {', '.join(parameters)}, {d.one(1e-2, 0.1)})"


def batch_norms(d: Draw) -> str:
    shape = d.shape(d.one(2, 3, 4, 4, 5), low=1)
    c = (shape[1],)
    training, kind = d.chance(0.6), of_parameters(d)
    running = "None, None"
    if not training or d.chance(0.4):
        running = ", ".join(d.array(c, kind, values=v, grad=False, written=True) for v in ("normal", "positive"))
    given = ", ".join(parameter(d, c, kind) for _ in range(2))
    return f"F.batch_norm({d.array(shape)}, {running}, {given}, {training}, 0.1, 0.05)"


def pooled_norms(d: Draw) -> str:
    n, c, height, width = d.size(1, 6), d.size(1, 40), d.size(2, 36), d.size(2, 36)
    values = d.one("normal", "whole")
    given = [d.array((n, c, height, width), "float32", values=values, grad=False)]
    given += [d.array((c,), "float32", grad=False) for _ in range(2)]
    given.append(d.array((n, c, height // 2, width // 2), "float32", grad=False))
    return f"pooled({', '.join(given)})"


def joint(d: Draw) -> str:
    shape = d.shape(d.one(1, 2, 3), low=1)
    x, y = (d.array(shape, "float32", grad=False) for _ in range(2))
    return f"joint({d.one('add', 'sub', 'mul', 'div')!r}, {x}, {y})"


def group_norms(d: Draw) -> str:
    groups, own = d.one(1, 2, 3), d.size(1, 5)
    shape = (d.size(1, 5), groups * own, *d.shape(d.one(0, 1, 2, 2), low=1, most=300))
    given = ", ".join(parameter(d, (shape[1],), of_parameters(d)) for _ in range(2))
    return f"F.group_norm({d.array(shape)}, {groups}, {given}, 0.05)"


# --- products --------------------------------------------------------------------------------------------------------


def matrices(d: Draw) -> str:
    n, k, m, b = (d.size(0 if d.chance(0.05) else 1, 70) for _ in range(4))
    b = min(b, 6)
    k = 1 if d.chance(0.05) else k
    if d.device == "cpu" and d.chance(0.15):
        d.dtype = d.one("float16", "bfloat16")
    d.ways = {
        "matmul._FEW": 0, "matmul._FEW_ALONE": 0, "matmul._FEW_ALONG": 0, "matmul._ALONE": d.one(0, 1 << 18),
        "matmul._TINY": d.one(-1, 1 << 16), "matmul_halves._SMALL": 0,
        "matmul._TINY_OF_MANY": d.one(-1, 1 << 14),
        "matmul._THIN": d.one(1, 4), "matmul._FEW_ROWS": d.one(0, 24),
        "matmul_halves._FEW": d.one(0, 12), "matmul_halves._FEW_HALF": d.one(0, 6),
    }  # fmt: skip

    def factor(*shape):  # stored directly, or as the transpose of its storage
        if d.chance(0.35):
            return f"{d.array((*shape[:-2], shape[-1], shape[-2]))}.mT"
        return d.array(shape)

    name = d.one(*words("mm bmm matmul matmul linear linear addmm baddbmm addbmm mv dot vdot addmv"))
    if name == "mm":
        return f"torch.mm({factor(n, k)}, {factor(k, m)})"
    if name == "bmm":
        return f"torch.bmm({factor(b, n, k)}, {factor(b, k, m)})"
    if name == "matmul":
        lead = d.one((), (b,), (b, 2), (1,))
        right = d.one((), lead, (1,) * len(lead))
        return d.one(f"{factor(*lead, n, k)} @ {factor(*right, k, m)}", f"{factor(*lead, n, k)} @ {d.array((k,))}")
    if name == "linear":
        lead = d.one((), (n,), (b, n), (b, 1, n))
        return f"F.linear({d.array((*lead, k))}, {factor(m, k)}, {d.maybe((m,))})"
    if name == "addmm":
        shape = d.one((n, m), (m,), (1, m), (n, 1))
        return (
            f"torch.addmm({d.array(shape)}, {factor(n, k)}, {factor(k, m)}, beta={d.one(1, 0.5)}, alpha={d.one(1, 2)})"
        )
    if name == "baddbmm":
        return f"torch.baddbmm({d.array((b, n, m))}, {factor(b, n, k)}, {factor(b, k, m)}, alpha={d.one(1, 2)})"
    if name == "addbmm":
        return f"torch.addbmm({d.array((n, m))}, {factor(b, n, k)}, {factor(b, k, m)})"
    if name == "mv":
        return f"torch.mv({factor(n, k)}, {d.array((k,))})"
    if name == "addmv":
        return f"torch.addmv({d.array((n,))}, {factor(n, k)}, {d.array((k,))})"
    return f"torch.{name}({d.array((k,))}, {d.array((k,))})"


def small_weights(d: Draw) -> str:
    """Weights of 8 and 4 bits, and products with them."""
    rows, columns, bits = d.one(1, 2, 3, 5, 8, 9, 33), d.size(1, 40), d.one(8, 4)
    d.ways = {"quantized._FEW": d.one(0, 32)}
    if bits == 8:
        depth = d.one(d.size(1, 40), 130, 300)
        stored = [d.array((columns, depth), "int8", low=-128, high=128, grad=False), d.array((columns,), grad=False)]
    else:
        groups, group = d.one(1, 2, 5), d.one(32, 64, 96)
        depth = groups * group
        stored = [
            d.array((columns, depth // 2), "uint8", low=0, high=256, grad=False),
            d.array((columns, groups), grad=False),
            d.maybe((columns, groups), grad=False),
        ]  # fmt: skip
    if d.chance(0.3):
        return f"small('int{bits}_weights', {', '.join(stored)})"
    return f"small('int{bits}_linear', {d.array((rows, depth))}, {', '.join(stored)}, {d.maybe((columns,))})"


def small_caches(d: Draw) -> str:
    """Attention on keys and values of 8 bits."""
    batch, held, group, queries = d.one(1, 2), d.one(1, 2, 3), d.one(1, 1, 2, 5), d.one(1, 1, 2, 3, 9)
    length, depth, width = d.size(1, 70), d.one(16, 32, 48, 64, 20), d.size(1, 40)
    heads, stored = held * group, []
    for features in (depth, width):  # not all keys, or all values, are the same, and scores are of about one: as below
        shape = batch, held, length, features
        stored.append(d.array(shape, "int8", low=-128, high=128, grad=False, layouts=VARIED))
        stored.append(d.array((batch, held, length), values="positive", grad=False))
    mask = d.one(None, (length,), (queries, length), (batch, 1, 1, length), (batch, heads, queries, length))
    mask = None if mask is None else d.array(mask, grad=False)
    query = d.array((batch, heads, queries, depth))
    return f"small('int8_attention', {query}, {', '.join(stored)}, {mask}, {d.one(0.0005, 0.005)})"


def integers(d: Draw) -> str:
    """Products of integers of 8 bits, and of numbers that become such."""
    d.ways = {"integer_products._SMALL": d.one(0, 4096)}
    rows, columns, depth = d.one(1, 2, 3, 9, 33), d.size(1, 40), d.one(d.size(1, 40), 64, 130, 300)
    weight = d.array((columns, depth), "int8", low=-128, high=128, grad=False)
    if d.chance(0.5):
        low = d.one(-128, 0)
        x = d.array((rows, depth), "uint8" if low == 0 else "int8", low=low, high=low + 256, grad=False)
        return f"integers('integer_sums', {x}, {weight}, {d.random.randint(0, 255)})"
    x, each = d.array((rows, depth), "float32"), d.one(1, columns)
    scales = d.array((each,), "float32", values="positive", grad=False)
    zeros = f"torch.zeros({each})" if d.chance(0.7) else d.array((each,), "float32", values="ones", grad=False)
    bias = d.array((columns,), "float32", grad=False) if d.chance(0.5) else None
    return f"integers('dynamic_linear', {x}, {weight}, {scales}, {zeros}, {bias}, {d.one(127, 255)})"


def integer_convolutions(d: Draw) -> str:
    """Convolutions of quantized images."""
    d.ways = {"integer_conv._SMALL": d.one(0, 1 << 16), "integer_conv._AT_A_TIME": d.one(1, 1 << 17)}
    count, inputs, outputs = d.one(1, 2, 3), d.one(d.size(1, 40), 16, 64), d.size(1, 24)
    height, width = d.one(1, 2, 3), d.one(1, 2, 3)
    places = [[d.one(low, low + 1), d.one(low, low + 1)] for low in (1, 0, 1)]  # stride, padding, dilation
    sides = [d.random.randint(step * (size - 1) + 1, 12) for step, size in zip(places[2], (height, width), strict=True)]
    x = d.array((count, inputs, *sides), "uint8", low=0, high=256, grad=False)
    weight = d.array((outputs, inputs, height, width), "int8", low=-128, high=128, grad=False)
    bias = d.array((outputs,), "float32", grad=False) if d.chance(0.7) else None
    zeros = d.random.randint(0, 255), d.random.randint(0, 255)
    return f"convolved({x}, {weight}, {bias}, {places}, {d.one(0.02, 0.1, 3.0)}, {zeros}, {d.chance(0.5)})"


def windows(d: Draw, dims: int) -> dict:
    """Returns the sizes of an image and of windows that fit it."""
    kernel = [d.random.randint(1, 4) for _ in range(dims)]
    dilation = [d.one(1, 1, 2, 3) for _ in range(dims)]
    padding = [d.random.randint(0, 3) for _ in range(dims)]
    size = [
        max(1, d.size(1, 24 if dims < 3 else 6), e * (k - 1) + 1 - 2 * p)
        for k, e, p in zip(kernel, dilation, padding, strict=True)
    ]
    stride = [d.one(1, 1, 2, 3, 4) for _ in range(dims)]
    return {k: tuple(v) for k, v in locals().items() if k in ("size", "kernel", "stride", "padding", "dilation")}


def conv_ways(d: Draw) -> None:
    if d.chance(0.3):
        d.ways["simd.tiles._POINTS"] = d.one(24, 64, 300)
    if d.chance(0.2):
        d.ways["simd.tiles._TILE"] = d.one(1 << 10, 1 << 13)
    if d.chance(0.3):
        d.ways["images._STRIP"] = d.one(1 << 10, 1 << 12)
    if d.chance(0.3):
        d.ways["images._SUMMED"] = d.one(1, 16)
    if d.chance(0.3):
        d.ways["conv._PACKED"] = d.one(0, 1 << 30)
    if d.chance(0.2):
        d.ways["conv._CHUNK"] = d.one(2, 5)
    if d.chance(0.4):  # the costs of transposing and moving data, by which the algorithm is chosen
        ways = (
            ("images._TURNED", "images._TURNING"),
            ("conv._FILLING", "conv._MOVING"),
            ("winograd._SOURCE", "winograd._INPUT"),
        )
        d.ways |= dict.fromkeys(d.one(*ways), -1e9)


def convolutions(d: Draw) -> str:
    dims = d.one(1, 2, 2, 2, 2, 3)
    w, groups = windows(d, dims), d.one(1, 1, 1, 2, 3)
    batch, ins, outs = d.size(1, 20), d.size(1, 9) * groups, d.size(1, 20) * groups
    if d.chance(0.03):
        batch = d.one(0, 600)
        w["size"] = tuple(min(n, 5) for n in w["size"])
    conv_ways(d)
    # Infinite weights times the zero padding give NaN where these are multiplied, as in NumPy.
    plain = d.one("normal", "normal", "whole", "ones")
    if d.chance(0.3):
        extra = tuple(d.random.randint(0, max(s, e) - 1) for s, e in zip(w["stride"], w["dilation"], strict=True))
        x, weight = d.array((batch, outs, *w["size"])), d.array((outs, ins // groups, *w["kernel"]), values=plain)
        return (
            f"F.conv_transpose{dims}d({x}, {weight}, {d.maybe((ins,))}, {w['stride']}, {w['padding']}, {extra}, "
            f"{groups}, {w['dilation']})"
        )
    x, weight = d.array((batch, ins, *w["size"])), d.array((outs, ins // groups, *w["kernel"]), values=plain)
    rest = f"{w['stride']}, {w['padding']}, {w['dilation']}, {groups}"
    return f"F.conv{dims}d({x}, {weight}, {d.maybe((outs,))}, {rest})"


def poolings(d: Draw) -> str:
    dims = d.one(1, 2, 2, 2, 3)
    w = windows(d, dims)
    if d.chance(0.2):
        w |= {"kernel": (2,) * dims, "stride": (2,) * dims, "padding": (0,) * dims, "dilation": (1,) * dims}
        w["size"] = tuple(max(2, n) for n in w["size"])
    padding = tuple(min(p, k // 2) for p, k in zip(w["padding"], w["kernel"], strict=True))
    lead = d.shape(d.one(1, 2, 2, 2), low=1, most=40)
    lead = lead if len(lead) == 2 or dims > 1 else (1, *lead)
    size = tuple(
        max(n, e * (k - 1) + 1)
        for n, k, e in zip(w["size"], w["kernel"], w["dilation"], strict=True)
    )  # fmt: skip
    ceil, name = d.one(True, False), d.one("max", "max", "avg", "adaptive_avg", "adaptive_max")
    x = d.array((*lead, *size), values=d.one("whole", None) if name == "max" else None)
    if name.startswith("adaptive"):
        wanted = tuple(d.random.randint(1, 6) for _ in range(dims))
        if d.chance(0.4):  # windows of equal size
            wanted = tuple(max(1, n // d.one(1, 2, 3)) for n in size)
        return f"F.{name}_pool{dims}d({x}, {wanted})"
    if name == "max":
        asked = d.one("True", "False")
        rest = f"{w['kernel']}, {w['stride']}, {padding}, {w['dilation']}, {ceil}, {asked}"
        return f"F.max_pool{dims}d({x}, {rest})"
    if dims == 1:
        return f"F.avg_pool1d({x}, {w['kernel']}, {w['stride']}, {padding}, {ceil}, {d.one(True, False)})"
    divisor = d.one("None", "None", "3")
    rest = f"{w['kernel']}, {w['stride']}, {padding}, {ceil}, {d.one(True, False)}, {divisor}"
    return f"F.avg_pool{dims}d({x}, {rest})"


def attentions(d: Draw) -> str:
    lead, heads = d.size(1, 3), d.size(1, 3)
    length, source, width, values = d.size(1, 33), d.size(1, 33), d.size(1, 20), d.size(1, 20)
    if d.chance(0.05):
        length, source = 70, d.one(250, 65)
    dims = (lead, heads) if d.chance(0.8) else (lead,)
    if d.chance(0.2):  # as layers call it, with parts of one projection, whose gradients lie in one array, too
        x = d.array((lead, length, 3 * heads * width), values=d.one("normal", "normal", "whole"), layouts=VARIED)
        parts = d.one(
            f"p.reshape({lead}, {length}, {heads}, {width}).transpose(1, 2) for p in {x}.split({heads * width}, 2)",
            f"{x}.reshape({lead}, {length}, 3, {heads}, {width}).permute(2, 0, 3, 1, 4).unbind()",
        )
        return f"F.scaled_dot_product_attention(*({parts}), None, 0.0, {d.chance(0.5)})"
    # Values of about one: with others, one key gets all the weight and the rest is rounding error. So are gradients
    # where all keys, or all values, are the same.
    q = d.array((*dims, length, width), values=d.one("normal", "normal", "whole", "ones"))
    k, v = (
        d.array((*dims, source, size), values=d.one("normal", "normal", "whole"), layouts=VARIED)
        for size in (width, values)
    )
    way = d.one("none", "none", "causal", "bool", "float")
    mask = "None"
    if way in ("bool", "float"):
        shape = d.one((length, source), (*dims, length, source), (lead, *[1] * (len(dims) - 1), length, source))
        mask = d.array(shape, "bool" if way == "bool" else None, values="normal")
    scale = d.one("None", "None", "0.3")
    return f"F.scaled_dot_product_attention({q}, {k}, {v}, {mask}, 0.0, {way == 'causal'}, scale={scale})"


def recurrent(d: Draw) -> str:
    kind, gates = d.one(("lstm", 4), ("lstm", 4), ("gru", 3), ("gru", 3), ("rnn_tanh", 1), ("rnn_relu", 1))
    batch = d.size(1, d.one(4, 20))
    steps, width, hidden = d.size(1, 7), d.size(1, d.one(12, 40)), d.size(1, d.one(12, 40))
    layers, ways, first, biases = d.one(1, 1, 2), d.one(1, 2), d.one(True, False), d.chance(0.7)
    d.ways = {"rnn._ROWS_AT_ONCE": d.one(1, 20, 256), "rnn._JOINT": d.one(0, 1 << 17)}
    parameters: list[str] = []

    # The slope of a gate that is nearly 1 is the difference of two nearly equal numbers: mostly rounding. So weights
    # are small, as in a new layer, or integers, which saturate gates completely.
    def some(shape):
        return d.array(shape, values=d.one("normal", "normal", "whole", "ones"))

    def weight(*shape):
        return d.array(shape, values=d.one("small", "small", "small", "whole"))

    for layer in range(layers):
        for _ in range(ways):
            ins = width if layer == 0 else hidden * ways
            parameters += [weight(gates * hidden, ins), weight(gates * hidden, hidden)]
            if biases:
                parameters += [some((gates * hidden,)), some((gates * hidden,))]
    state = [some((layers * ways, batch, hidden)) for _ in range(2 if kind == "lstm" else 1)]
    initial = f"({', '.join(state)})" if kind == "lstm" else state[0]
    rest = f"[{', '.join(parameters)}], {biases}, {layers}, 0.0, False, {ways == 2}"
    if d.chance(0.3):  # sequences of several lengths
        lengths = sorted((d.random.randint(1, steps) for _ in range(batch)), reverse=True)
        sizes = [sum(n > t for n in lengths) for t in range(lengths[0])]
        return f"torch.{kind}({some((sum(sizes), width))}, torch.tensor({sizes}), {initial}, {rest})"
    x = some((batch, steps, width) if first else (steps, batch, width))
    return f"torch.{kind}({x}, {initial}, {rest}, {first})"


# --- losses, tables, indices -----------------------------------------------------------------------------------------


def losses(d: Draw) -> str:
    classes, batch, rest = d.size(1, 50), d.size(1, 20), d.shape(d.one(0, 0, 0, 1, 2), low=1, most=30)
    d.ways = {"loss._CLASSES": d.one(1, 32)}
    x, smoothing = d.array((batch, classes, *rest)), d.one(0.0, 0.0, 0.2)
    reduction = d.one("mean", "sum", "none")
    if d.chance(0.2):
        return f"F.nll_loss({x}, {d.indices((batch, *rest), classes)}, {d.maybe((classes,), values='positive', grad=False)}, reduction={reduction!r})"  # noqa: E501
    weight, ignored = d.maybe((classes,), 0.3, values="positive", grad=False), d.one(-100, 0, 1)
    target = (
        d.indices((batch, *rest), classes) if d.chance(0.8) else d.array((batch, classes, *rest), values="positive")
    )
    if not rest and d.chance(0.3):  # samples of a batch, each with its own reduction
        x, target = d.array((batch, 3, classes), grad=False), d.indices((batch, 3), classes)
        more = f"ignore_index={ignored}, reduction={reduction!r}, label_smoothing={smoothing}"
        loss = f"lambda x, t: F.cross_entropy(x, t, {more})"
        return f"torch.func.vmap({loss if reduction == 'none' else f'torch.func.grad({loss})'})({x}, {target})"
    return (
        f"F.cross_entropy({x}, {target}, {weight}, ignore_index={ignored}, reduction={reduction!r}, "
        f"label_smoothing={smoothing})"
    )


def tables(d: Draw) -> str:
    rows, width = d.size(1, 30), d.size(1, 40)
    weight = d.array((rows, width))
    way = d.one("embedding", "embedding", "bag", "bag", "offsets", "segments")
    if way == "embedding":
        padding = d.one("None", "0", str(rows - 1))
        index = d.indices(d.shape(d.one(0, 1, 2), most=60), rows)
        return f"F.embedding({index}, {weight}, {padding}, scale_grad_by_freq={d.one(True, False)})"
    mode = d.one("sum", "mean", "max")
    if way == "bag":
        shape = d.shape(2, most=60)
        weights = d.maybe(shape, 0.4) if mode == "sum" else "None"
        index = d.indices(shape, rows)
        return f"F.embedding_bag({index}, {weight}, mode={mode!r}, per_sample_weights={weights})"
    if way == "offsets":
        count = d.size(1, 30)
        starts = sorted([0, *(d.random.randint(0, count) for _ in range(d.random.randint(0, 6)))])
        weights = d.maybe((count,), 0.4) if mode == "sum" else "None"
        index = d.indices((count,), rows)
        padding = d.one("None", "None", "0")
        rest = f"mode={mode!r}, per_sample_weights={weights}, padding_idx={padding}"
        return f"F.embedding_bag({index}, {weight}, torch.tensor({starts}, device=device), {rest})"
    lengths = [d.random.randint(0, 4) for _ in range(5)]
    data = d.array((sum(lengths), width))
    return (
        f"torch.segment_reduce({data}, {d.one('sum', 'mean')!r}, lengths=torch.tensor({lengths}, device={data}.device))"
    )


def indices(d: Draw) -> str:
    shape = d.shape(d.one(1, 2, 2, 3, 4), low=1)
    dim = d.dim(shape)
    x, name = (
        d.array(shape),
        d.one("gather", "scatter", "scatter_add", "index_add", "index_select", "index", "index_put"),
    )
    n = shape[dim]
    if name in ("gather", "scatter", "scatter_add"):
        some = tuple(
            d.size(1, 12) if i == dim % len(shape) and name != "scatter" else d.random.randint(1, k)
            for i, k in enumerate(shape)
        )
        if name == "gather":
            return f"torch.gather({x}, {dim}, {d.indices(some, n)})"
        if name == "scatter":  # any of several values for one index may win, so the indices are distinct
            return f"torch.scatter({x}, {dim}, distinct({some}, {dim}, {n}, {x}.device), {d.array(some)})"
        return f"torch.scatter_add({x}, {dim}, {d.indices(some, n)}, {d.array(some)})"
    count = d.size(0, 12)
    index = d.indices((count,), n)
    part = tuple(count if i == dim % len(shape) else k for i, k in enumerate(shape))
    if name == "index_add":
        return f"torch.index_add({x}, {dim}, {index}, {d.array(part)}, alpha={d.one(1, -2)})"
    if name == "index_select":
        return f"torch.index_select({x}, {dim}, {index})"
    first = d.indices(d.shape(d.one(1, 2), most=20), shape[0], low=d.one(0, -shape[0]))
    if name == "index":
        where = f"[{first}]" if len(shape) == 1 or d.chance(0.5) else f"[:, {d.indices((3,), shape[1])}]"
        return f"{x}{where}"
    at = d.array(shape, "bool") if d.chance(0.3) else None
    if at:
        return f"torch.index_put({x}, ({at},), {d.array(())})"
    one = d.array(())
    return f"torch.index_put({x}, ({first},), {one}, accumulate={d.one(True, False)})"


# --- lists of arrays -------------------------------------------------------------------------------------------------


def pairs(d: Draw) -> tuple[str, str]:
    """Makes parameters and their gradients."""
    shapes = [d.any_shape() for _ in range(d.random.randint(1, 4))]
    params, grads = ([d.array(s, grad=False, written=w) for s in shapes] for w in (True, False))
    return f"[{', '.join(params)}]", f"[{', '.join(grads)}]"


def optimizers(d: Draw) -> str:
    name = d.one("SGD", "SGD", "Adam", "Adam", "AdamW")
    given = [f"lr={d.one(0.1, 0.01)}", f"weight_decay={d.one(0.0, 0.0, 0.1)}", f"maximize={d.one(True, False)}"]
    if name == "SGD" and d.chance(0.5):
        given.append("kernel='sgd_each'")  # a launch for each parameter, as plans have it
    if name == "SGD" and d.chance(0.7):
        nesterov = d.one(True, False)
        given += [f"momentum={d.one(0.9, 0.5)}", f"nesterov={nesterov}"]
        given += [] if nesterov else [f"dampening={d.one(0.0, 0.3)}"]
    elif name != "SGD":
        given += [
            f"amsgrad={d.one(True, False)}",
            f"betas={d.one((0.9, 0.999), (0.5, 0.9))}",
            f"eps={d.one(1e-8, 1e-3)}",
        ]
    params, grads = pairs(d)
    return f"stepped({name!r}, {params}, {grads}, {d.one(1, 3)}, {', '.join(given)})"


def clipping(d: Draw) -> str:
    params, grads = pairs(d)
    if d.chance(0.5):
        return f"torch.nn.utils.get_total_norm({grads})"
    return f"clipped({params}, {grads}, {d.one(0.5, 100.0)}, {d.one(2.0, 2.0, 1.0, 'inf')})"


def scaling(d: Draw) -> str:
    d.dtype = "float32"
    params, grads = pairs(d)
    return f"scaled({params}, {grads}, {d.one(2.0, 1024.0)})"


# --- random numbers --------------------------------------------------------------------------------------------------


def bernoulli(d: Draw) -> str:
    """Random draws; on the CPU both kernels draw the same values."""
    x, p = d.array(d.any_shape()), round(d.random.uniform(0.05, 0.95), 2)
    n = d.random.randint(4097, 9000)  # fewer numbers are made in one pass
    return d.one(
        f"F.dropout({x}, {p})", f"seen(torch.empty({d.any_shape()}).bernoulli_({p}))", f"F.alpha_dropout({x}, {p})",
        f"torch.rand({n})", f"seen(torch.empty({n}).uniform_(-{p}, 2))", f"torch.randn({n})",
    )  # fmt: skip


SAMPLES = {
    "uniform_(-1, 2)": "(x >= -1) & (x <= 2)", "normal_(1, 0.1)": "(x > -1) & (x < 3)", "log_normal_()": "x > 0",
    "exponential_(2.0)": "x >= 0", "cauchy_()": "x == x", "geometric_(0.3)": "x >= 1",
    "bernoulli_(0.4)": "(x == 0) | (x == 1)", "random_(3, 9)": "(x >= 3) & (x < 9)", "random_()": "x >= 0",
}  # fmt: skip


def samples(d: Draw) -> str:
    """Draws twice from one seed, into memory with and without gaps: the values must be the same, and in range."""
    n = d.one(1, 5, 300, 1000, 5000)
    if d.chance(0.6):
        text, inside = d.one(*SAMPLES.items())
        return f"drawn(lambda x: x.{text}, lambda x: {inside}, {d.any_shape()}, {d.dtype!r}, device)"
    text, inside = d.one(
        ("torch.randperm({n}, device=device)", "x.sort().values == torch.arange({n}, device=device)"),
        ("torch.randint(-5, 9, ({n},), device=device)", "(x >= -5) & (x < 9)"),
        ("torch.rand({n}, device=device).multinomial(1)", "(x >= 0) & (x < {n})"),
        ("torch.full(({n},), 0.3, device=device).bernoulli()", "(x == 0) | (x == 1)"),
        ("torch.empty({n}, device=device).bernoulli_(torch.full(({n},), 0.3, device=device))", "(x == 0) | (x == 1)"),
        ("torch.normal(torch.zeros({n}, device=device), torch.ones({n}, device=device))", "x.abs() < 9"),
        ("torch.normal(torch.zeros({n}, device=device), 1.0)", "x.abs() < 9"),
        ("torch.normal(0.0, torch.ones({n}, device=device))", "x.abs() < 9"),
        ("torch.poisson(torch.full(({n},), 3.0, device=device))", "(x >= 0) & (x == x.round())"),
        ("torch.binomial(torch.full(({n},), 9.0, device=device), torch.full(({n},), 0.3, device=device))",
         "(x >= 0) & (x <= 9)"),
        ("torch._standard_gamma(torch.full(({n},), 2.0, device=device))", "x >= 0"),
        ("torch._sample_dirichlet(torch.ones({n}, 3, device=device))", "(x >= 0) & (x <= 1)"),
        ("F.dropout(torch.ones({n}, device=device), 0.25)", "(x == 0) | ((x - 4 / 3).abs() < 1e-5)"),
        ("F.alpha_dropout(torch.ones({n}, device=device), 0.25)", "x == x"),
        ("torch.native_dropout(torch.ones({n}, device=device), 0.25, True)[0]", "x >= 0"),
        ("F.dropout1d(torch.ones(3, 4, {n}, device=device), 0.25)", "x >= 0"),
    )  # fmt: skip
    return f"repeated(lambda: {text}, lambda x: {inside})".replace("{n}", str(n))


def dropped(d: Draw) -> str:
    return f"dropped({d.array(d.any_shape(), values='ones')}, {d.one(0.1, 0.5, 0.9)})"


def sparse(d: Draw) -> str:
    """Products with sparse matrices, samples of products, sorted coordinates, steps; on a GPU, a dense product."""
    n, m, k, count = d.size(1, 30), d.size(1, 30), d.size(1, 20), d.size(1, 80)
    if d.device != "cpu":
        return f"{d.array((n, m))} @ {d.array((m, k))}"
    rows, columns = d.indices((count,), n), d.indices((count,), m)
    way = d.one("product", "transposed", "vector", "coalesced", "hybrid", "sampled", "step")
    if way == "step":
        table, values = d.array((n, k), "float32", grad=False, written=True), d.array((count, k), "float32", grad=False)
        grad = f"torch.sparse_coo_tensor({rows}[None], {values}, ({n}, {k}))"
        return f"stepped('SGD', [{table}], [{grad}], 1, lr={d.one(1.0, 0.1)}, maximize={d.one(True, False)})"
    values = d.array((count, k) if way == "hybrid" else (count,), "float32")
    size = f"({n}, {m}, {k})" if way == "hybrid" else f"({n}, {m})"
    s = f"torch.sparse_coo_tensor(torch.stack([{rows}, {columns}]), {values}, {size})"
    if way in ("coalesced", "hybrid"):
        return f"{s}.coalesce().values()"
    if way == "transposed":
        return f"torch.sparse.mm({s}.t(), {d.array((n, k), 'float32')})"
    if way == "sampled":
        a, b = d.array((n, k), "float32"), d.array((k, m), "float32")
        return f"torch.sparse.sampled_addmm({s}.detach().to_sparse_csr(), {a}, {b}).values()"
    return f"torch.sparse.mm({s}, {d.array((m, 1 if way == 'vector' else k), 'float32')})"


def copies(d: Draw) -> str:
    """Copies of arrays whose dimensions are stored in any order, and in other dtypes."""
    shape = d.shape(4 if d.chance(0.4) else d.one(1, 2, 2, 3, 4, 5))
    x = d.array(shape)
    order = d.random.sample(range(len(shape)), len(shape))
    if d.chance(0.2):
        return f"{x}.permute({order}).to(torch.{d.one('float16', 'bfloat16', 'float32')})"
    if len(shape) == 4 and d.chance(0.5):
        return f"{x}.permute({order}).clone(memory_format=torch.channels_last)"
    if d.chance(0.3):
        return f"{x}.permute({order}).reshape({prod(shape)})"
    return f"{x}.permute({order}).clone(memory_format=torch.contiguous_format)"


def joins(d: Draw) -> str:
    """Arrays of other sizes along one dimension, joined there."""
    shape = d.shape(d.one(1, 2, 2, 3), most=3000)
    dim = d.random.randrange(len(shape))
    arrays = [d.array((*shape[:dim], d.size(), *shape[dim + 1 :])) for _ in range(d.random.randint(1, 4))]
    return f"torch.cat([{', '.join(arrays)}], {dim - d.one(0, len(shape))})"


FAMILIES: dict[str, Family] = {
    "unary": Family(
        unary,
        words("neg abs sqrt reciprocal log log2 log10 log1p expm1 exp2 tanh sin cos square logical_not exp sigmoid "
              "silu relu erf half_lookup silu.backward sigmoid.backward tanh.backward relu.backward"),
        words("rsqrt mish log_sigmoid hardsigmoid hardswish mish.backward log_sigmoid.backward "
              "hardsigmoid_grad hardswish.backward"),
    ),
    "settings": Family(
        settings, words("gelu gelu.backward clamp half_slopes"),
        words("threshold leaky_relu hardshrink softshrink softplus elu hardtanh threshold_grad leaky_relu_grad "
              "hardtanh_grad clamp_grad shrink_grad softplus.backward elu.backward"),
    ),
    "power": Family(power, ("pow",)),
    "copies": Family(copies, ("clone_copy", "to_copy", "reshape")),
    "joins": Family(joins, ("joined",)),
    "sparse": Family(
        sparse, words("sparse_product sparse_sample sparse_order sparse_argsort sparse_sums sparse_add_rows"),
        special=(), loose=8,
    ),
    "binary": Family(
        binary, ("add", "sub", "mul", "div", "maximum", "minimum", "half_arithmetic", *COMPARISONS), ("rsub", "rdiv")
    ),
    "quotients": Family(quotients, (), words("remainder floor_divide div_floor copysign hypot"), special=INFINITE),
    "truth": Family(truth, ("logical_and", "logical_or")),
    "choices": Family(choices, ("where", "masked_fill")),
    "ternary": Family(ternary, (), words("addcmul addcdiv lerp lerp_by_number clamp_between")),
    "sums": Family(sums, words("sum mean vector_norm prod var std var_mean std_mean"), ("logsumexp",), loose=4),
    "extremes": Family(extremes, words("amax amin max_all min_all extreme_dim arg_extreme")),
    "truths": Family(truths, (), ("any", "all")),
    "scans": Family(scans, ("cumsum", "cumsum_reversed"), loose=4),
    "largest": Family(largest, ("topk",)),
    "softmaxes": Family(softmaxes, words("softmax log_softmax softmax.backward log_softmax.backward"), loose=2),
    "layer_norms": Family(
        layer_norms, words("layer_norm layer_norm.backward rms_norm rms_norm.backward"), loose=8, special=INFINITE,
    ),
    "batch_norms": Family(  # a mean with infinities is infinite or NaN, depending on the order of the sum
        batch_norms, ("batch_norm", "batch_norm.backward"), ("move_running",), loose=8, special=()
    ),
    "pooled_norms": Family(pooled_norms, ("batch_norm_relu_pool", "batch_norm_relu_pool_grad"), special=()),
    "joint": Family(joint, words("joint_add joint_sub joint_mul joint_div")),
    "group_norms": Family(group_norms, ("group_norm", "group_norm.backward"), loose=8, special=INFINITE),
    "matrices": Family(
        matrices, words("linear linear.backward matmul mm bmm matmul_nt matmul_tn addmm outer_products column_sum "
                        "half_product"),
        words("mv dot vdot addmv baddbmm addbmm"), sums=True, special=INFINITE,
    ),
    "small_weights": Family(
        small_weights, words("int8_linear int4_linear int8_weights int4_weights"), loose=4, sums=True, special=INFINITE,
    ),
    "small_caches": Family(small_caches, ("int8_attention",), loose=8, sums=True, special=INFINITE),
    "integers": Family(integers, ("integer_sums", "dynamic_linear"), special=()),
    "integer_convolutions": Family(integer_convolutions, ("integer_convolution",), special=()),
    "convolutions": Family(
        convolutions, words("conv conv_transpose conv_grad_input conv_grad_weight"), loose=4, sums=True,
        special=INFINITE,
    ),
    "poolings": Family(
        poolings,
        words("max_pool max_pool_values max_pool_grad avg_pool avg_pool_grad adaptive_avg_pool adaptive_avg_pool_grad"),
        ("adaptive_max_pool", "max_pool_indices"), sums=True, special=INFINITE,
    ),
    "attentions": Family(attentions, ("attention", "half_attention", "attention.backward"), loose=4, special=()),
    "recurrent": Family(
        recurrent, words("lstm_layer lstm_layer.backward gru_layer gru_layer.backward rnn_layer"), loose=4, special=()
    ),
    "losses": Family(
        losses,
        words("cross_entropy cross_entropy.backward cross_entropy_of_batch cross_entropy_of_batch_backward"),
        ("nll", "nll_grad"), loose=4,
    ),
    "tables": Family(
        tables, words("embedding embedding_grad bag_sum bag_lookup bag_lookup_grad"), sums=True, special=INFINITE
    ),
    "indices": Family(  # the gradient of a value that is put in many places is a long sum
        indices, words("gather scatter scatter_add index_add"), words("index_select index index_grad index_put"),
        loose=4,
    ),
    "optimizers": Family(optimizers, ("sgd_step", "sgd_each", "adam_step"), loose=4, special=()),
    "clipping": Family(clipping, ("gradient_norm", "gradient_scale"), ("clip_gradients",), loose=4),
    "scaling": Family(scaling, (), ("unscale_gradients", "update_loss_scale")),
    "bernoulli": Family(bernoulli, ("bernoulli_mask", "uniform_numbers", "spin_wait")),
    "samples": Family(
        samples, (),
        ("uniform", "normal", "log_normal", "exponential", "cauchy",
         "geometric", "bernoulli", "random", "randint", "randperm",
         "multinomial", "dropout_mask", "bernoulli_sample", "bernoulli_over", "normal_both",
         "normal_mean", "normal_std", "poisson_sample", "binomial_sample", "standard_gamma_sample",
         "dirichlet_sample"), claims=True,
    ),
    "dropped": Family(dropped, (), ("philox_dropout", "dropout_place"), claims=True),
}  # fmt: skip
