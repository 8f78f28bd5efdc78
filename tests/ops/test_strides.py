"""Strides of results are PyTorch's: for the records of its op database in several layouts, and for any operands."""

import random

import pytest

import tensorgrad as tg
from tensorgrad.rows.strides import of_copy, of_operands
from tests.support.alike import alike

torch = pytest.importorskip("torch", reason="torch is the oracle of these tests")
pytest.importorskip("expecttest", reason="PyTorch's test database imports expecttest")
strides = pytest.importorskip("tests.conformance.strides")

pytestmark = pytest.mark.filterwarnings("ignore")

RECORDS = strides.supported()
EVERY = 4  # of the records, how many share one that `make test` looks at


def check(names, all_of_them=False):
    listed, wrong, right = strides.listed(), [], []
    for name in names:
        for layout, problems in strides.check(RECORDS[name]).items():
            key = f"{name}: {layout}"
            if problems and key not in listed:
                wrong.append(f"{key}: {problems[0]}")
            elif key in listed and not problems:
                right.append(key)
    assert not wrong, "\n".join(wrong[:20])
    assert not (right and all_of_them), f"these agree now: take them out of {strides.LISTED.name}: {right[:20]}"


def test_results_lie_as_in_torch():
    check(list(RECORDS)[::EVERY])


@pytest.mark.conformance
def test_the_results_of_all_records_lie_as_in_torch():
    check(RECORDS, all_of_them=True)


def test_what_is_listed_exists():
    assert {key.partition(": ")[0] for key in strides.listed()} <= set(RECORDS)


def _any_layout(shape):
    """A tensor with its dimensions in any order in memory, with gaps, expanded, or with odd strides of sizes of 1."""
    order = random.sample(range(len(shape)), len(shape))
    way = random.choice(["dense", "gaps", "expanded", "odd"])
    x = torch.zeros([shape[d] * (1 + (way == "gaps" and random.random() < 0.5)) for d in order])
    x = x.permute(sorted(range(len(shape)), key=order.__getitem__))[tuple(slice(0, n) for n in shape)]
    if way == "expanded" and shape:
        d = random.randrange(len(shape))
        x = x.narrow(d, 0, 1).expand(shape)
    if way == "odd":
        odd = [random.choice([s, 1, 7, 100]) if n == 1 else s for n, s in zip(x.shape, x.stride(), strict=True)]
        x = torch.zeros(9000).as_strided(x.shape, odd)
    return x


def test_the_rules_are_those_of_torch_for_any_operands():
    random.seed(0)
    for _ in range(3000):
        shape = [random.choice([1, 1, 2, 3, 4]) for _ in range(random.randint(0, 5))]
        operands = [_any_layout(shape[random.choice([0, 0, len(shape) // 2]) :]) for _ in range(random.randint(1, 3))]
        function = (torch.neg, torch.add, torch.addcmul)[len(operands) - 1]
        expected = function(*operands)
        given = tuple((tuple(x.shape), x.stride()) for x in operands)
        assert of_operands(tuple(expected.shape), given) == expected.stride(), given
        assert of_copy(*given[0]) == operands[0].clone().stride(), given[0]


LAYOUTS = ("rows", "permuted", "transposed")


def _laid_out(t, way):
    x = t.arange(24.0).reshape(2, 3, 4)
    if way == "permuted":
        return x.permute(2, 0, 1).contiguous().permute(1, 2, 0)
    return x if way == "rows" else x.transpose(0, 1).contiguous().transpose(0, 1)


@alike
def test_the_first_operand_decides_and_random_numbers_follow(t):
    F, seen = t.nn.functional, []
    for first in LAYOUTS:
        for second in LAYOUTS:
            a, b = _laid_out(t, first), _laid_out(t, second)
            t.manual_seed(0)
            results = [
                a + b, a * 2, a.exp(), F.gelu(a), t.where(a > 3, b, a), t.lerp(a, b, 0.5), a.masked_fill(b > 3, 0.0),
                a.double(), b.addcmul(a, a), F.dropout(a + b, 0.5), t.rand_like(a + b), (a + b).bernoulli(0.5),
                (a + b).normal_(),
            ]  # fmt: skip
            seen += [(x.stride(), x) for x in results]
    return seen


@alike
def test_attention_lies_as_its_queries(t):
    attention, seen = t.nn.functional.scaled_dot_product_attention, []
    apart = t.arange(84.0).reshape(1, 3, 7, 4).sin()
    beside = apart.transpose(1, 2).contiguous().transpose(1, 2)  # the heads of a query side by side
    attention(beside, beside, beside).transpose(1, 2).view(1, 7, 12)
    for q in (apart, beside, apart.permute(2, 0, 1, 3).contiguous().permute(1, 2, 0, 3)):
        made = attention(q, q, q)
        seen += [attention(q, q[:, :, :5], q[:, :, :5], is_causal=True).stride()]
        results = made, attention(q[0], q[0], q[0]), attention(q, q, q[..., :2]), attention(q, q, q, is_causal=True)
        seen += [(x.stride(), x) for x in results]
    return seen


@alike
def test_one_image_of_several_is_in_no_memory_format(t):
    x = t.arange(120.0).reshape(2, 3, 4, 5).contiguous(memory_format=t.channels_last)[0].unsqueeze(0)
    F = t.nn.functional
    results = [F.interpolate(x, size=(8, 8), mode=mode) for mode in ("nearest", "bilinear", "bicubic", "area")]
    return [x.stride()] + [made.stride() for made in (*results, F.max_pool2d(x, 2), F.pad(x, (1, 1)), x + 1)]


@alike
def test_gradients_of_leaves_lie_as_the_leaves(t):
    seen = []
    for way in LAYOUTS:
        x = _laid_out(t, way).detach().clone().requires_grad_()
        gap = t.ones(3, 8)[:, ::2].detach().requires_grad_()
        ((x * x.exp()).sum() + (gap * 2).sum() + (x.transpose(0, 2) @ t.ones(2, 5)).sum()).backward()
        seen += [x.grad.stride(), gap.grad.stride()]
    return seen


@alike
def test_the_gradient_of_a_mean_has_memory_of_its_own(t):
    """In every pass: a hook may write to it."""
    seen = []
    for dims in ((), (1,), (-1, True), ((0, 2),), ((0, 1, 2), True)):
        for dtype in (t.float32, t.bfloat16):
            x = t.arange(24.0).reshape(2, 3, 4).to(dtype).requires_grad_()
            for create_graph in (False, True):
                y = x.mean(*dims)
                (g,) = t.autograd.grad(y, x, t.full_like(y, 0.3), create_graph=create_graph)
                seen += [g.stride(), g.mul_(2)]
            inner = x * 1
            inner.register_hook(lambda g: seen.append((g.stride(), g.mul_(2))))
            inner.mean(*dims).sum().backward()
            seen.append(x.grad)
    return seen


@alike
def test_an_outer_product_added_to_a_matrix_lies_as_a_sum(t):
    column, row, whole = t.zeros(3, 1), t.zeros(1, 5), t.zeros(5, 3).t()
    matrices = (
        *(x.expand(3, 5) for x in (column, row, row[:, :1])),
        column,
        row,
        row[0],
        whole,
        t.zeros(3, 10)[:, ::2],
    )
    vectors = [(x, y) for x in (t.ones(3), t.ones(1).expand(3)) for y in (t.ones(5), t.ones(10)[::2])]
    return [t.addr(matrix, x, y).stride() for matrix in matrices for x, y in vectors]


@alike
def test_a_part_is_replaced_where_the_memory_has_it(t):
    """`as_strided` counts from the beginning of the memory, also in a copy of a view of it."""
    memory, seen = t.arange(12.0), []
    views = (
        memory[2:6], memory[::2], memory.view(3, 4)[1:], memory.view(3, 4)[:, 1:3], memory[3:].view(3, 3).t(),
        memory[:3].expand(2, 3),
    )  # fmt: skip
    for view in views:
        for offset in (None, 0, 1, 3):
            made = t.as_strided_scatter(view, t.tensor([-1.0, -2.0]), (2,), (1,), offset)
            seen += [made, made.stride(), made.is_contiguous()]
    return [*seen, memory]


@alike
def test_results_of_lapack_lie_in_columns(t):
    seen = []
    for lead in ((), (2,)):
        a = t.arange(1.0, 13.0).square().sin().repeat(*lead, 1).reshape(*lead, 4, 3)
        b = t.arange(8.0).square().cos().repeat(*lead, 1).reshape(*lead, 4, 2)
        h, tau = t.geqrf(a)
        solved = [t.linalg.lstsq(*given).solution for given in ((a, b), (a, b[..., 0]), (a.mT, b[..., :3, :]))]
        upper = t.triangular_solve(b[..., :3, :], a[..., :3, :])
        results = [*solved, *upper, t.linalg.householder_product(h, tau), t.ormqr(h, tau, b)]
        results.append(t.ormqr(h, tau, b.mT, left=False))
        seen += [(x.stride(), x) for x in results]
    return seen


@alike
def test_view_copy_of_what_no_view_shows(t):
    x = t.arange(6.0).reshape(2, 3).t()
    made = [t.view_copy(x, (6,)), t.view_copy(x, (3, 2)), t.view_copy(x, t.int32), t.view_copy(x, size=[2, 3])]
    return [(y.stride(), y) for y in made]


@alike
def test_on_meta_copies_lie_as_on_the_cpu(t):
    image, matrix = t.zeros(2, 3, 4, 5), t.zeros(4, 3).t()
    seen = []
    for x in (image, image.permute(0, 3, 1, 2), image[:, :, ::2].permute(0, 3, 1, 2), matrix[:, None].expand(3, 2, 4)):
        for device in ("cpu", "meta"):
            y = t.empty_strided(x.shape, x.stride(), device=device)
            seen += [y.clone().stride(), y.contiguous().stride(), y.double().stride(), t.rand_like(y).stride()]
            if y.ndim == 4:
                formats = (t.channels_last, t.contiguous_format, t.preserve_format)
                seen += [t.rand_like(y, memory_format=way).stride() for way in formats]
    return seen + [x.to("meta").stride() for x in (image, image.permute(0, 3, 1, 2), matrix)]


def test_large_arrays_lie_as_small_ones():
    """Compiled kernels and NumPy's leave results in the same strides."""
    for n in (2, 60):
        x = tg.ones(n, 30, 40).permute(1, 2, 0)
        y = tg.ones(30, 40, n)
        for result in (x + y, tg.nn.functional.gelu(x), tg.where(x > 0, y, y), x.sigmoid() * y):
            assert result.stride() == (torch.ones(n, 30, 40).permute(1, 2, 0) + torch.ones(30, 40, n)).stride()


EXPANDED = {
    "rows": lambda t, x: x[:3].expand(2, 3),
    "columns": lambda t, x: x[:2, None].expand(2, 3),
    "both": lambda t, x: x[0].expand(2, 3),
    "transposed": lambda t, x: x[:6].view(3, 2).t(),
    "in the middle": lambda t, x: x[:3].expand(4, 2, 3).transpose(0, 2),
    "one in the middle": lambda t, x: x[:6].view(2, 1, 3).expand(2, 4, 3),
    "steps": lambda t, x: x[::2][:2, None].expand(2, 3),
}
CONVERTED = {
    "sin": lambda t, x: t.sin(x),
    "sqrt": lambda t, x: x.sqrt(),
    "+ 1.5": lambda t, x: x + 1.5,
    "+ 0-d": lambda t, x: x + t.tensor(1.5),
    "+ float": lambda t, x: x + t.ones(x.shape),
    "float *": lambda t, x: t.ones(x.shape[-1]) * x,
    "/": lambda t, x: x / x,
    "+ float64": lambda t, x: x + t.ones(x.shape, dtype=t.float64),
    "maximum": lambda t, x: t.maximum(t.ones(1), x),
    "where": lambda t, x: t.where(x > 1, x, t.ones(x.shape)),
    ">": lambda t, x: x > t.ones(x.shape),
    "pow": lambda t, x: x.pow(0.5),
    "atan2": lambda t, x: t.atan2(x, x),
    "lerp": lambda t, x: t.addcmul(t.ones(x.shape[-1]), x, x.float()),
}


@pytest.mark.parametrize("dtype", ["int64", "int32", "bool", "float16"])
@pytest.mark.parametrize("way", EXPANDED)
def test_operands_that_are_converted_keep_their_place(way, dtype):
    """A conversion of an operand must not decide how the result lies in memory."""
    for name, call in CONVERTED.items():
        found = []
        for library in (tg, torch):
            x = EXPANDED[way](library, library.arange(6).to(getattr(library, dtype)))
            try:
                made = call(library, x)
            except (RuntimeError, TypeError) as error:
                found.append(type(error).__name__)
            else:
                found.append((str(made.dtype).split(".")[-1], made.stride()))
        assert found[0] == found[1], name
