"""What nodes show of what they saved: `grad_fn._saved_self`, as PyTorch's do."""

import warnings

import pytest

import tensorgrad as tg
from tests.support.alike import alike, error

try:
    import torch

    from tests.conformance import opdb
    from tests.conformance.opdb_bridge import differences, leaves, plain_name
except ImportError:
    torch = None

needs_torch = pytest.mark.skipif(torch is None, reason="torch is not installed: nothing to compare with")
SAMPLES, ELEMENTS = 6, 500


def signed(value, rank: int):
    """PyTorch keeps a negative dimension as it was given, and shows it as a number without a sign."""
    if isinstance(value, tuple):
        return tuple(signed(v, rank) for v in value)
    return value - 2**64 if type(value) is int and value >= 2**63 else value


def nodes(record):
    """Pairs of nodes of the same name, PyTorch's and ours, that made the results of a record's samples."""
    if not record.supports_autograd or torch.float64 not in record.dtypes:
        return
    for call in opdb.calls(record, torch.float64, True, SAMPLES, ELEMENTS):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                expected, actual = call.torch(), call.ours()
        except Exception:
            continue  # other tests look at that
        for theirs, ours in zip(leaves(expected), leaves(actual), strict=False):
            if theirs.grad_fn is not None and ours.grad_fn is not None and theirs.grad_fn.name() == ours.grad_fn.name():
                yield theirs.grad_fn, ours.grad_fn, theirs, str(call)


def compared(record):
    """(differences, names of ours that PyTorch has not, {(node, name): whether ours has it})."""
    wrong, strange, seen = [], set(), {}
    for theirs, ours, result, what in nodes(record):
        mine = {n for n in dir(ours) if n.startswith("_saved_")}
        names = {n for n in dir(theirs) if n.startswith("_saved_")}
        strange |= {(ours.name(), n) for n in mine - names}
        for name in sorted(names):
            seen[ours.name(), name] = name in mine
            if name not in mine:
                continue
            try:
                expected = getattr(theirs, name)
            except RuntimeError:
                continue  # written in place since
            actual = getattr(ours, name)
            if isinstance(expected, torch.Tensor) or isinstance(actual, tg.Tensor):
                problems = differences(expected, actual, name)
            else:
                problems = [] if like(expected, actual, result) else [f"{name}: {actual!r}, expected {expected!r}"]
            wrong += [f"{ours.name()} of {what}: {p}" for p in problems]
    return wrong, strange, seen


def like(expected, actual, result) -> bool:
    if isinstance(expected, torch.dtype):
        return plain_name(expected) == plain_name(actual)
    if isinstance(expected, tuple) and any(isinstance(v, torch.Tensor) for v in expected):
        return len(expected) == len(actual) and not any(
            differences(e, a, "") if e is not None else a is not None for e, a in zip(expected, actual, strict=True)
        )
    expected = signed(expected, result.ndim)
    if type(expected) is int and type(actual) is int and expected < 0 <= actual:
        return True  # a dimension that was counted from the end
    if isinstance(expected, tuple) and isinstance(actual, tuple) and len(expected) == len(actual):
        return all(like(e, a, result) for e, a in zip(expected, actual, strict=True))
    return expected == actual


RECORDS = {} if torch is None else {opdb.record_name(r): r for r in opdb.records() if opdb.resolve(r) is not None}


PHASES = "singular vectors and eigenvectors are free in sign and phase"
FUSED = "one op here, several there: what comes in is saved, not what comes between"
GIVEN = "saved as it is used here, as it was given there"
OTHER_OPS = "made of other ops"
KNOWN = {
    "__getitem__": FUSED, "__rdiv__": OTHER_OPS, "amax": GIVEN, "amin": GIVEN, "einsum": OTHER_OPS, "inner": OTHER_OPS,
    "linalg.eig": PHASES, "linalg.eigh": PHASES, "linalg.eigvals": PHASES, "linalg.eigvalsh": PHASES,
    "linalg.norm": GIVEN, "linalg.norm.subgradients_at_zero": GIVEN, "linalg.svd": PHASES, "linalg.svdvals": PHASES,
    "linalg.tensorsolve": OTHER_OPS, "linalg.vector_norm": GIVEN, "logsumexp": GIVEN, "masked.amax": GIVEN,
    "masked.amin": GIVEN, "masked.logsumexp": GIVEN, "masked.norm": GIVEN, "masked.var": OTHER_OPS,
    "masked_scatter": GIVEN, "native_batch_norm": GIVEN, "native_group_norm": GIVEN,
    "nn.functional.adaptive_avg_pool1d": OTHER_OPS, "nn.functional.adaptive_max_pool1d": OTHER_OPS,
    "nn.functional.avg_pool2d": GIVEN, "nn.functional.batch_norm": GIVEN, "nn.functional.conv3d": GIVEN,
    "nn.functional.cross_entropy": FUSED, "nn.functional.dropout2d": GIVEN,
    "nn.functional.linear_cross_entropy": FUSED, "nn.functional.max_pool2d": GIVEN,
    "nn.functional.normalize": OTHER_OPS, "nn.functional.prelu": GIVEN, "norm": GIVEN,
    "outer": FUSED, "pca_lowrank": PHASES, "slice": GIVEN,
    "std": GIVEN, "svd": PHASES, "svd_lowrank": PHASES, "tensordot": OTHER_OPS, "var": GIVEN,
    "std_mean": GIVEN, "var_mean": GIVEN,
}  # fmt: skip


@needs_torch
@pytest.mark.parametrize("name", RECORDS)
def test_names_and_values_are_pytorchs(name):
    wrong, strange, _ = compared(RECORDS[name])
    assert not strange
    assert not wrong or name in KNOWN, "\n".join(wrong)


@alike
def test_saved_values(torch):
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    y = torch.ones(2, 2, requires_grad=True)
    return [
        [x.exp().grad_fn._saved_result, x.exp().grad_fn._saved_result.grad_fn.name()],
        [(x * y).grad_fn._saved_self, (x * y).grad_fn._saved_other, (x * y).grad_fn._saved_self is x],
        [(x * 2).grad_fn._saved_self, (x * 2).grad_fn._saved_other, (2.5 * x).grad_fn._saved_other],
        [(x**3).grad_fn._saved_self, (x**3).grad_fn._saved_exponent, (x**2).grad_fn._saved_exponent],
        [x.addmm(x, y).grad_fn._saved_mat1, x.addmm(x, y).grad_fn._saved_alpha],
        [x.sum().grad_fn._saved_self_sym_sizes, x.mean().grad_fn._saved_self_sym_numel],
        [x[1].grad_fn._saved_dim, x[1].grad_fn._saved_index, x[:, :1].grad_fn._saved_end],
        [x[[0]].grad_fn._saved_indices[0], torch.where(x > 2, x, y).grad_fn._saved_condition],
        [sorted(n for n in dir(x.exp().grad_fn) if "_saved_" in n), hasattr(x.exp().grad_fn, "_saved_other")],
        error(getattr, x.exp().grad_fn, "_saved_nothing"),
    ]


@alike
def test_a_convolution_saves_its_settings(torch):
    x, w = torch.ones(1, 2, 5, 5, requires_grad=True), torch.ones(4, 1, 2, 2, requires_grad=True)
    node = torch.nn.functional.conv2d(x, w, None, 2, 1, 1, 2).grad_fn
    names = ("input", "weight", "stride", "padding", "dilation", "groups", "transposed")
    return [getattr(node, f"_saved_{name}") for name in names]


@alike
def test_what_was_freed_or_written_says_so(torch):
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = x.exp()
    node, raw = y.grad_fn, y.grad_fn._raw_saved_result
    y.sum().backward()
    z = x + 1
    square = z * z
    z.mul_(2)
    written = error(getattr, square.grad_fn, "_saved_self").partition(" (The value")[0]
    return [
        error(getattr, node, "_saved_result"), raw.data, error(raw.register_hooks, abs, abs), x.sum().grad_fn.name(),
        written.replace(", which is output 0 of Add,", "").replace(", which is output 0 of Mul,", ""),
    ]  # fmt: skip


@alike
def test_hooks_on_one_saved_tensor(torch):
    x, seen = torch.tensor([1.0, 2.0], requires_grad=True), []
    y = x.exp()
    raw = y.grad_fn._raw_saved_result

    def pack(tensor):
        seen.append(["pack", tensor])
        return tensor.tolist()

    def unpack(packed):
        seen.append(["unpack", packed])
        return torch.tensor(packed) * 10

    errors = [error(raw.register_hooks, 1, 2).partition(":")[0]]
    raw.register_hooks(pack, unpack)
    errors += [
        error(raw.register_hooks, pack, unpack),
        error((x * 2).grad_fn._raw_saved_self.register_hooks, pack, unpack),
    ]
    errors.append(error(x.sin().grad_fn._raw_saved_self.register_hooks, lambda t: t.mul_(2), unpack))
    saved = y.grad_fn._saved_result
    y.sum().backward()
    return [errors, raw.data, saved.detach(), x.grad, seen]


@alike
def test_raw_saved_lists(torch):
    x = torch.arange(4.0, requires_grad=True)
    y = x[torch.tensor([1, 2])]
    (raw,) = y.grad_fn._raw_saved_indices
    raw.register_hooks(lambda t: t + 1, lambda t: t - 2)
    y.sum().backward()
    return [x.grad]


@alike
def test_next_functions_are_those_of_tensors(torch):
    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx, factor, x, name, y, flag=True):
            return x * factor + y

        @staticmethod
        def backward(ctx, grad):
            return None, 2 * grad, None, None, None

    x, y = torch.ones(2, requires_grad=True), torch.ones(2)
    node = Scale.apply(2, x * 1, "text", y).grad_fn
    seen: list = []
    node.register_hook(lambda inputs, outputs: seen.append([len(inputs), inputs]))
    torch.autograd.backward(Scale.apply(2, x, "text", y).sum())
    return [[child and child.name() for child, _ in node.next_functions], len(node.next_functions), x.grad]


@alike
def test_raw_saved_tensors_of_custom_functions(torch):
    seen: list = []

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y, save=True):
            z = x * y
            if save:
                ctx.save_for_backward(x, y, None, z)
            return z

        @staticmethod
        def backward(ctx, g):
            x, y, nothing, z = ctx.saved_tensors
            seen.append([x, y, nothing, z])
            return g * y, g * x, None

    def made():
        x, y = torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor([3.0, 4.0])
        return x, Product.apply(x, y)

    x, z = made()
    node = z.grad_fn
    raw = node._raw_saved_tensors
    found = [type(raw).__name__, [type(r).__name__ for r in raw], [r.data for r in raw]]
    for _ in range(2):  # only one pair of hooks
        found.append([error(r.register_hooks, lambda t: t * 2, lambda t: t + 0) for r in raw])
    found += [[r.data for r in raw], node.saved_tensors, node.saved_tensors[0].is_leaf]
    z.sum().backward()
    found += [x.grad, error(lambda: node._raw_saved_tensors), error(lambda: node.saved_tensors)]

    for pair in ((1, 2), (lambda t: t,), (), (lambda t: t, None)):
        x, z = made()  # torch's objects must not outlive the node
        found.append(error(z.grad_fn._raw_saved_tensors[0].register_hooks, *pair).partition(":")[0])
    found.append(error(z.grad_fn._raw_saved_tensors[0].register_hooks, lambda t: t.add_(1), abs))
    for unpack in (lambda t: 5, lambda t: 1 / 0):
        x, z = made()
        z.grad_fn._raw_saved_tensors[0].register_hooks(lambda t: t, unpack)
        found.append(error(z.sum().backward))
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t + 1, lambda t: t * 10):
        x, z = made()
    found.append([error(r.register_hooks, abs, abs) for r in z.grad_fn._raw_saved_tensors])
    z.sum().backward()
    unsaved = Product.apply(x, x, False).grad_fn
    return [*found, x.grad, unsaved._raw_saved_tensors, seen, error(torch.autograd.SavedTensor)]
