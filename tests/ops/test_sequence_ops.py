"""Losses of sequences, bags of embeddings, masked reductions, and what else torch.nn.functional has for them.

Most tests are scenarios that run under tensorgrad and under torch, and must come out alike.
"""

import numpy as np

from tests.support.alike import alike, error
from tests.support.compare import outcome


def failures(*calls):
    """Returns the name of the type that each call raises, or what the call returns."""
    found = map(outcome, calls)
    return [type(made).__name__ if isinstance(made, Exception) else made for made in found]


# --- connectionist temporal classification --------------------------------------------------------------------------


@alike(tolerance=1e-9)
def test_ctc_loss_of_all_shapes_and_lengths(torch):
    """Random lengths, impossible targets and empty ones; targets padded or in one dimension; all reductions."""
    rng = np.random.default_rng(0)
    found = []
    for case in range(60):
        steps, batch, classes = (int(rng.integers(*bounds)) for bounds in ((1, 10), (1, 5), (2, 6)))
        blank = int(rng.integers(classes))
        inputs = [int(n) for n in rng.integers(0, steps + 1, batch)]
        lengths = [int(n) for n in rng.integers(0, 5, batch)]
        shape = (batch, max(lengths) + case % 3) if case % 2 else (sum(lengths),)
        labels = rng.integers(0, classes - 1, shape)
        labels += labels >= blank
        log_probs = torch.tensor(rng.standard_normal((steps, batch, classes)), requires_grad=True)
        if case % 5:
            inputs, lengths = torch.tensor(inputs), torch.tensor(lengths)
        for reduction in ("none", "mean", "sum"):
            for zero_infinity in (False, True):
                loss = torch.nn.functional.ctc_loss(
                    log_probs, torch.tensor(labels), inputs, lengths, blank, reduction, zero_infinity
                )
                weights = torch.tensor(rng.random(tuple(loss.shape)))
                found.append((loss, torch.autograd.grad(loss, log_probs, weights)))
    return found


@alike
def test_ctc_loss_of_one_sample(torch):
    log_probs = torch.linspace(-2, 0, 12).reshape(4, 3).requires_grad_()
    targets = torch.tensor([1, 1])
    losses = [
        torch.nn.functional.ctc_loss(log_probs, targets, torch.tensor(4), torch.tensor(2), reduction="none"),
        torch.nn.functional.ctc_loss(log_probs, targets, (4,), (2,)),
        torch.ctc_loss(log_probs, targets, (4,), (2,), 0, 2),
    ]
    return losses, torch.autograd.grad(sum(losses), log_probs)


@alike
def test_ctc_loss_refuses(torch):
    def loss(log_probs=None, targets=None, inputs=(4, 4), lengths=(2, 2), **options):
        log_probs = torch.zeros(4, 2, 3) if log_probs is None else log_probs
        targets = torch.ones(2, 2, dtype=torch.int64) if targets is None else targets
        return torch.nn.functional.ctc_loss(log_probs, targets, inputs, lengths, **options)

    return failures(
        lambda: loss(inputs=(4, 5)), lambda: loss(inputs=(4,)), lambda: loss(lengths=(2, 3)),
        lambda: loss(lengths=(2, -1)), lambda: loss(blank=3), lambda: loss(blank=-1), lambda: loss(reduction="x"),
        lambda: loss(log_probs=torch.zeros(0, 2, 3)), lambda: loss(log_probs=torch.zeros(4, 2, 3).half()),
        lambda: loss(targets=torch.ones(3, dtype=torch.int64)), lambda: loss(targets=torch.ones(1, 2)),
        lambda: loss(targets=torch.ones(1, 2, 2)), lambda: loss(inputs=torch.tensor([4.0, 4.0])),
        lambda: loss(torch.zeros(4, 3), inputs=4, lengths=2),
    )  # fmt: skip


def test_ctc_loss_refuses_unknown_classes_and_second_derivatives():
    import pytest

    import tensorgrad as torch

    log_probs = torch.zeros(4, 1, 3, requires_grad=True)
    with pytest.raises(IndexError, match="classes from 0 to 2"):
        torch.nn.functional.ctc_loss(log_probs, torch.tensor([[1, 3]]), (4,), (2,))
    padded = torch.nn.functional.ctc_loss(log_probs, torch.tensor([[1, -7]]), (4,), (1,))  # padding may be anything
    (gradient,) = torch.autograd.grad(padded, log_probs, create_graph=True)
    with pytest.raises(RuntimeError, match="_ctc_loss_backward is not implemented"):
        gradient.sum().backward()


# --- bags of embeddings ---------------------------------------------------------------------------------------------


@alike(tolerance=1e-9)
def test_embedding_bag_of_all_modes(torch):
    """Ragged, equal and empty bags; paddings, weights, gradients."""
    rng = np.random.default_rng(1)
    found = []
    for case in range(60):
        rows, width, bags = (int(n) for n in rng.integers(1, 7, 3))
        size = int(rng.integers(1, 5))
        table = torch.tensor(rng.standard_normal((rows, width)), requires_grad=True)
        options = {"padding_idx": int(rng.integers(-rows, rows))} if case % 3 == 0 else {}
        if case % 2:
            shape = (bags, size)
        else:
            starts = [0, *np.sort(rng.integers(0, bags * size + 1, bags)).tolist()]
            options["include_last_offset"] = case % 4 == 0
            if case % 4 == 0:
                starts[-1] = bags * size
            shape = (bags * size,)
            options["offsets"] = torch.tensor(starts)
        indices = torch.tensor(rng.integers(0, rows, shape))
        weights = torch.tensor(rng.standard_normal(shape), requires_grad=True)
        for mode in ("sum", "mean", "max", "weighted"):
            more = {"mode": mode}
            if mode == "weighted":
                more = {"mode": "sum", "per_sample_weights": weights}
            out = torch.nn.functional.embedding_bag(indices, table, **options, **more)
            wanted = (table, weights) if mode == "weighted" else (table,)
            found.append((out, torch.autograd.grad((out * out.detach().cos()).sum(), wanted)))
    return found


def test_embedding_bag_divides_gradients_by_frequencies():
    """(PyTorch's dense gradient takes the frequency of another row, unless all are the same.)"""
    import tensorgrad as torch

    table = torch.ones(4, 1, requires_grad=True)
    bag = torch.nn.functional.embedding_bag
    out = bag(torch.tensor([1, 1, 2, 1]), table, torch.tensor([0, 3]), scale_grad_by_freq=True, mode="sum")
    (gradient,) = torch.autograd.grad(out.sum(), table)
    assert gradient.flatten().tolist() == [0, 1, 1, 0]


@alike
def test_embedding_bag_by_products(torch):
    table, indices = torch.arange(12.0).reshape(4, 3), torch.tensor([3, 0, 0, 2])
    found = []
    for mode in (1, 2):
        for offsets, rest in (([0, 1, 1], ()), ([0, 1, 1, 4], (False, None, True)), ([0, 2], (False, None, False, 0))):
            found += torch.embedding_bag(table, indices, torch.tensor(offsets), False, mode, *rest)
    no_bags = torch.embedding_bag(table, indices, torch.zeros(0, dtype=torch.int64), False, 1)
    return found, no_bags[0], torch.embedding_bag(table.half(), indices.int(), torch.tensor([0, 1]).int(), False, 0)[0]


@alike
def test_embedding_bag_refuses(torch):
    table, flat = torch.arange(12.0).reshape(4, 3), torch.tensor([3, 0, 0, 2])
    pairs, offsets = flat.reshape(2, 2), torch.tensor([0, 2])
    bag = torch.nn.functional.embedding_bag
    return failures(
        lambda: bag(flat, table), lambda: bag(pairs, table, offsets), lambda: bag(flat.reshape(1, 2, 2), table),
        lambda: bag(flat, table, torch.tensor([1, 2])), lambda: bag(flat, table, torch.tensor([0, 5])),
        lambda: bag(flat, table[0], offsets), lambda: bag(flat.float(), table, offsets),
        lambda: bag(flat, table, offsets, mode="x"), lambda: bag(pairs, table, mode="max", sparse=True),
        lambda: bag(pairs, table, mode="max", scale_grad_by_freq=True), lambda: bag(pairs, table, padding_idx=4),
        lambda: bag(pairs + 1, table), lambda: bag(pairs - 1, table), lambda: bag(pairs, table.int()),
        lambda: bag(pairs, table, per_sample_weights=torch.ones(2, 2)),
        lambda: bag(pairs, table, mode="sum", per_sample_weights=torch.ones(2)),
        lambda: bag(pairs, table, mode="sum", per_sample_weights=torch.ones(2, 2).double()),
        lambda: torch.embedding_bag(table, flat, offsets, mode=3),
        lambda: torch.embedding_bag(table, flat, offsets[:0], include_last_offset=True),
    )  # fmt: skip


@alike
def test_embedding_renorm(torch):
    found = []
    for norm in (1.0, 2.0, 3.0, float("inf"), 0.0):
        table = torch.arange(12.0).reshape(4, 3)
        result = torch.embedding_renorm_(table, torch.tensor([[1, 3], [3, 3]]), 2.0, norm)
        found += [result is table, table]
    table = torch.arange(12.0).reshape(4, 3).requires_grad_()
    out = torch.nn.functional.embedding(torch.tensor([1, 1, 2]), table, max_norm=1.0, scale_grad_by_freq=True)
    found += [out, table, torch.autograd.grad(out.sum(), table)]
    bags = torch.nn.functional.embedding_bag(torch.tensor([[0, 3]]), table, max_norm=2.0, norm_type=1)
    return found, bags, failures(
        lambda: torch.embedding_renorm_(table, torch.tensor([0]), 1.0, 2.0),
        lambda: torch.embedding_renorm_(table.detach()[0], torch.tensor([0]), 1.0, 2.0),
        lambda: torch.embedding_renorm_(table.detach(), torch.tensor([4]), 1.0, 2.0),
        lambda: torch.embedding_renorm_(table.detach(), torch.tensor([0.0]), 1.0, 2.0),
    )  # fmt: skip


# --- segments, channels, groups -------------------------------------------------------------------------------------


@alike(tolerance=1e-9)
def test_segment_reduce_and_its_gradients(torch):
    """Empty segments, gaps, ties, zeros; lengths and offsets, of the first dimension and of a later one."""
    rng = np.random.default_rng(2)
    found = []
    for reduce in ("sum", "mean", "max", "min", "prod"):
        for initial in (None, 2.0):
            for shape, lengths, options in (
                ((7,), [3, 0, 4], {}), ((6, 2), [1, 0, 3], {"unsafe": True}), ((2, 5), [[2, 3], [0, 5]], {"axis": 1}),
                ((2, 4, 3), [[1, 0, 3], [2, 2, 0]], {"axis": 1}), ((2, 3), [[1, 2], [2, 1]], {"axis": -1}),
            ):  # fmt: skip
                data = torch.tensor(rng.integers(-2, 3, shape).astype(float), requires_grad=True)
                out = torch.segment_reduce(data, reduce, lengths=torch.tensor(lengths), initial=initial, **options)
                weights = torch.tensor(rng.random(tuple(out.shape)))  # PyTorch's ties do not share negative gradients
                found.append((out, torch.autograd.grad(out, data, weights)))
            data = torch.tensor(rng.standard_normal(6), requires_grad=True)
            out = torch.segment_reduce(data, reduce, offsets=torch.tensor([1, 3, 3, 5]), initial=initial)
            found.append((out, torch.autograd.grad(out.sum(), data)))
    return found


@alike
def test_segment_reduce_refuses(torch):
    data, lengths = torch.ones(4, 3), torch.tensor([2, 2])

    def reduce(data=data, name="sum", lengths=lengths, **options):
        return torch.segment_reduce(data, name, lengths=lengths, **options)

    return failures(
        lambda: reduce(name="x"), lambda: reduce(lengths=None), lambda: reduce(indices=lengths),
        lambda: reduce(data.int()), lambda: reduce(lengths=lengths + 1), lambda: reduce(lengths=lengths - 3),
        lambda: reduce(axis=1), lambda: reduce(data[0, 0]), lambda: reduce(lengths=lengths.float()),
        lambda: torch.segment_reduce(data, "sum", offsets=torch.tensor([0, 3, 2])),
    )  # fmt: skip


def test_segment_reduce_has_second_derivatives():
    import tensorgrad as torch

    data = torch.tensor([1.0, 2.0, 0.0, 3.0, -1.0], dtype=torch.float64, requires_grad=True)
    lengths = torch.tensor([2, 0, 3])
    for reduce in ("sum", "mean", "max", "prod"):
        assert torch.autograd.gradgradcheck(
            lambda x: torch.segment_reduce(x, reduce, lengths=lengths, initial=0.5), data
        )  # fmt: skip


@alike
def test_conv_tbc(torch):
    rng = np.random.default_rng(3)
    x, weight, bias = (
        torch.tensor(rng.standard_normal(shape), requires_grad=True) for shape in ((5, 2, 3), (2, 3, 4), (4,))
    )
    found = []
    for pad in (0, 1, 2):
        out = torch.nn.functional.conv_tbc(x, weight, bias, pad)
        found.append((out, out.is_contiguous(), torch.autograd.grad(out.sin().sum(), (x, weight, bias))))
    return found, failures(
        lambda: torch.conv_tbc(x[0], weight, bias), lambda: torch.conv_tbc(x, weight[0], bias),
        lambda: torch.conv_tbc(x, weight, bias[:2]), lambda: torch.conv_tbc(x, weight[:, :2], bias),
        lambda: torch.conv_tbc(x[:1], torch.cat([weight, weight]), bias), lambda: torch.conv_tbc(x, weight, bias[None]),
    )  # fmt: skip


@alike
def test_native_functions(torch):
    x = torch.arange(24.0).reshape(2, 4, 3).sin().requires_grad_()
    out, mean, rstd = torch.native_group_norm(x, None, None, 4, 2, 3, 2, 0.1)  # read as four samples of two channels
    shuffled = torch.native_channel_shuffle(x, 2), torch.nn.functional.channel_shuffle(x, 4)
    return out, mean, rstd, shuffled, torch.autograd.grad(out.sum() + (out * out.detach().sin()).sum(), x), failures(
        lambda: torch.native_group_norm(x, None, None, 2, 4, 2, 2, 0.1),
        lambda: torch.native_group_norm(x, None, None, 2, 4, 3, 3, 0.1),
        lambda: torch.native_group_norm(x, torch.ones(3), None, 2, 4, 3, 2, 0.1),
        lambda: torch.native_group_norm(x.transpose(0, 1), None, None, 2, 4, 3, 2, 0.1),
        lambda: torch.native_channel_shuffle(x, 3),
    )  # fmt: skip


def test_native_group_norm_differentiates_the_statistics():
    """(PyTorch drops their gradient when the result itself is not differentiated.)"""
    import tensorgrad as torch

    x = torch.linspace(-1, 2, 12, dtype=torch.float64).reshape(1, 4, 3).requires_grad_()
    for chosen in ((1,), (2,), (0, 1, 2)):
        assert torch.autograd.gradgradcheck(
            lambda x: tuple(torch.native_group_norm(x, None, None, 1, 4, 3, 2, 0.1)[i] for i in chosen), x
        )  # fmt: skip


# --- losses ---------------------------------------------------------------------------------------------------------


@alike
def test_losses_with_numbers_for_reductions(torch):
    x, y = torch.linspace(-1, 2, 12).reshape(3, 4), torch.linspace(0.9, 0.1, 12).reshape(3, 4)
    sign = torch.tensor([1.0, -1.0, 1.0])
    found = []
    for reduction in (0, 1, 2, 3, -1):
        found += [
            torch.binary_cross_entropy_with_logits(x, y, None, x[0].exp(), reduction),
            torch.binary_cross_entropy_with_logits(x[:1], y, y, reduction=reduction),
            torch.cosine_embedding_loss(x, y, sign, 0.1, reduction),
            torch.hinge_embedding_loss(x, sign[:, None], 1.0, reduction),
            torch.margin_ranking_loss(x, y, sign[:, None], 0.1, reduction),
            torch.triplet_margin_loss(x, y, x + y, -0.5, 2, 1e-6, True, reduction),
            torch.poisson_nll_loss(x, y, False, True, 2.0, reduction),
            torch.kl_div(x, y, reduction),
            torch.kl_div(x, y, reduction=reduction, log_target=True),
            torch.ctc_loss(x[:, None], torch.tensor([[1]]), (3,), (1,), 0, reduction),
        ]
    return found, failures(
        lambda: torch.kl_div(x, y, "mean"), lambda: torch.hinge_embedding_loss(x, y, 1.0, True),
        lambda: torch.binary_cross_entropy_with_logits(x, y[:1]), lambda: torch.poisson_nll_loss(x, y),
    )  # fmt: skip


@alike
def test_gumbel_softmax_draws_the_same_numbers(torch):
    logits = torch.linspace(-1, 1, 60, dtype=torch.float64).reshape(3, 20).requires_grad_()
    found = []
    for tau, hard, dim in ((1, False, -1), (0.5, True, -1), (2.0, True, 0)):
        out = torch.nn.functional.gumbel_softmax(logits, tau, hard, dim=dim)
        found.append((out, torch.autograd.grad((out * logits.detach()).sum(), logits)))
    return found


@alike
def test_linear_cross_entropy_in_chunks(torch):
    """In all chunk sizes the same loss and gradients as in one piece, in double and half precision."""
    rng = np.random.default_rng(4)
    options = [None, *({"batch_chunk_size": n} for n in (1, 2, 3, 9)), {"chunking_method": "aspect_ratio"}, {},
               {"chunking_method": None, "acc_policy": "accurate", "allow_retain_graph": True}]  # fmt: skip
    target = torch.tensor([3, 0, 5, 2, 2, 5, 1])
    found = []
    for chosen in options:
        made = None if chosen is None else torch.nn.LinearCrossEntropyOptions(**chosen)
        for reduction in ("mean", "sum", "none"):
            for extra in ({}, {"ignore_index": 2}, {"weight": torch.arange(1.0, 7.0, dtype=torch.float64)}):
                x, weight, bias = (
                    torch.tensor(rng.standard_normal(shape), requires_grad=True) for shape in ((7, 2), (6, 2), (6,))
                )
                loss = torch.nn.functional.linear_cross_entropy(
                    x, weight, target, linear_bias=bias, reduction=reduction, options=made, **extra
                )
                found.append((loss, torch.autograd.grad(loss.sum(), (x, weight, bias))))
    one = torch.nn.functional.linear_cross_entropy(x[0], weight, target[0], options=made)
    return found, one


def test_linear_cross_entropy_in_chunks_agrees_in_half_precision_and_twice():
    import tensorgrad as torch

    loss = torch.nn.functional.linear_cross_entropy
    options = torch.nn.LinearCrossEntropyOptions(batch_chunk_size=2)
    x, weight = torch.randn(5, 3, dtype=torch.float64), torch.randn(4, 3, dtype=torch.float64)
    target = torch.tensor([0, 3, 1, 1, 2])
    whole = loss(x, weight, target)
    half = loss(x.half(), weight.half(), target, options=options)
    assert half.dtype == torch.float16 and abs(float(half) - float(whole)) < 1e-2
    x.requires_grad_()
    out = loss(x, weight, target, options=options)
    (first,) = torch.autograd.grad(out, x, retain_graph=True)
    (again,) = torch.autograd.grad(out, x)
    assert torch.equal(first, again)


@alike
def test_linear_cross_entropy_options_are_checked(torch):
    options = torch.nn.LinearCrossEntropyOptions
    x, weight, target = torch.ones(8, 4), torch.ones(16, 4), torch.zeros(8, dtype=torch.int64)

    def disagree():
        chosen = options(batch_chunk_size=3, chunking_method="aspect_ratio")
        return torch.nn.functional.linear_cross_entropy(x, weight, target, options=chosen)

    return repr(options(batch_chunk_size=2)), failures(
        lambda: options(acc_policy="x"), lambda: options(chunking_method="aspect_ratio:0"), disagree,
        lambda: options(batch_chunk_size=0), lambda: options(acc_dtype=torch.int64),
        lambda: torch.nn.functional.linear_cross_entropy(x, weight, target, options=options(acc_dtype=torch.float16)),
        lambda: setattr(options(), "acc_policy", "x"), lambda: torch.nn.LinearCrossEntropyLoss(3, 4, label_smoothing=2),
    )  # fmt: skip


# --- layers ---------------------------------------------------------------------------------------------------------


def described(module):
    """What a module shows of itself: its text, its state, its plain attributes."""
    plain = {k: v for k, v in vars(module).items() if not k.startswith("_") and isinstance(v, int | float | str)}
    return repr(module), list(module.state_dict().items()), plain


def gradients(torch, module, out):
    return torch.autograd.grad(out.sum(), list(module.parameters()), allow_unused=True)


@alike
def test_embedding_bag_layer(torch):
    found = []
    pairs, flat = torch.tensor([[1, 2], [3, 0]]), torch.tensor([3, 1, 1])
    for options in ({}, {"mode": "sum", "padding_idx": -1}, {"mode": "max"}, {"max_norm": 0.5, "norm_type": 1.0},
                    {"scale_grad_by_freq": True, "mode": "sum", "include_last_offset": True}):  # fmt: skip
        layer = torch.nn.EmbeddingBag(4, 3, **options)
        found.append(described(layer))
        out = layer(pairs)
        found.append((out, gradients(torch, layer, out), layer(flat, torch.tensor([0, 1, 3]))))
    layer = torch.nn.EmbeddingBag.from_pretrained(torch.eye(3), mode="sum", padding_idx=0)
    return found, described(layer), layer.weight.requires_grad, failures(
        lambda: torch.nn.EmbeddingBag(4, 3, padding_idx=4),
        lambda: torch.nn.EmbeddingBag.from_pretrained(torch.ones(3)),
        lambda: torch.nn.EmbeddingBag(4, 3, _weight=torch.ones(3, 3)),
    )  # fmt: skip


@alike
def test_loss_layers(torch):
    ctc = torch.nn.CTCLoss(blank=1, reduction="sum", zero_infinity=True)
    log_probs = torch.linspace(-2, 0, 24).reshape(4, 2, 3)
    found = [described(ctc), ctc(log_probs, torch.tensor([[0, 2], [2, 2]]), (4, 2), (2, 2))]
    chunks = torch.nn.LinearCrossEntropyOptions(batch_chunk_size=2)
    for options in (
        {},
        {"bias": True, "out_features": (2,), "weight": torch.arange(1.0, 6.0), "ignore_index": 1},
        {"options": chunks, "reduction": "none"},
    ):
        loss = torch.nn.LinearCrossEntropyLoss(4, 5, **options)
        target = torch.tensor([[0, 1], [4, 3], [1, 2]])
        out = loss(torch.linspace(-1, 1, 12).reshape(3, 4), target if "bias" in options else target[:, 0])
        found.append((described(loss)[:2], out, gradients(torch, loss, out)))
    return found


@alike
def test_adaptive_log_softmax_with_loss(torch):
    found = []
    x = torch.linspace(-1, 1, 40).reshape(5, 8).sin().requires_grad_()
    for target in ([0, 3, 4, 9, 19], [1, 1, 2, 0, 3], [12, 13, 10, 19, 19]):
        layer = torch.nn.AdaptiveLogSoftmaxWithLoss(8, 20, (4, 10), div_value=2.0, head_bias=True)
        found.append(described(layer))
        result = layer(x, torch.tensor(target))
        found.append((repr(type(result)._fields), result, torch.autograd.grad(result.loss, [x, *layer.parameters()],
                                                                              allow_unused=True)))  # fmt: skip
        found += [layer.log_prob(x), layer.predict(x), layer(x[0], torch.tensor(target[0])), layer.cutoffs]
    layer.reset_parameters()
    found.append(list(layer.parameters()))
    return found, failures(
        *(lambda c=c: torch.nn.AdaptiveLogSoftmaxWithLoss(8, 20, c) for c in ([], [0], [5, 4], [4, 4], [20], [1.5])),
        lambda: layer(x, torch.tensor([1, 2])), lambda: layer(x, torch.tensor([0, 0, 0, 0, 20])),
        lambda: layer(x, torch.tensor([0, 0, 0, 0, -1])), lambda: layer(x, torch.tensor([[0]])),
        lambda: layer(x, torch.tensor(1)), lambda: layer(x[0], torch.tensor([1])),
    )  # fmt: skip


# --- masks ----------------------------------------------------------------------------------------------------------


@alike
def test_masked_functions(torch):
    x = torch.arange(6.0).reshape(2, 3)
    mask = torch.tensor([[True, False, True], [False, False, False]])
    found = []
    for name in ("sum", "prod", "amax", "amin", "mean", "norm", "var", "std", "logsumexp"):
        function = getattr(torch.masked, name)
        found += [function(x, dim=dim, mask=m) for dim in (None, (), 1, (0, -1)) for m in (None, mask, mask[0].int())]
        found += [function(x, dim=0, keepdim=True, mask=mask), function(torch.tensor(3.0), dim=0)]
        found += failures(
            lambda: function(x, dim=(0, 0)), lambda: function(x, dim=2), lambda: function(x.bool(), 0, mask=mask),
            lambda: function(x[0], 0, mask=mask), lambda: function(x.int(), 0, mask=mask),
            lambda: function(x, 0, mask=mask[:, :2]),
        )  # fmt: skip
    for name in ("softmax", "log_softmax", "softmin", "cumsum", "cumprod", "median", "argmax", "argmin"):
        function = getattr(torch.masked, name)
        found += [function(x, 1, mask=mask), function(x, 0), function(x, 0, mask=mask[:1])]
        found += failures(lambda: function(x.int(), 1, mask=mask),
                          lambda: function(x.int(), 0, mask=mask[:1], dtype=torch.float64))  # fmt: skip
        found += [] if name.startswith("cum") else failures(lambda: function(x.bool(), 0, mask=mask[:1]))
    found += [torch.masked.var(x, 1, unbiased=False, mask=mask), torch.masked.std(x, 1, correction=0.5)]
    found += [torch.masked.normalize(x, 1.0, 1, mask=mask), torch.masked.norm(x, float("-inf"), 1, mask=mask)]
    found += [torch.masked.logaddexp(x, x, input_mask=mask, other_mask=~mask), torch.masked.is_masked_tensor(x)]
    return found, failures(lambda: torch.masked.var(x, 1, unbiased=True, correction=1))


def test_masked_tensors_are_refused_with_the_way_round():
    import pytest

    import tensorgrad as torch

    x, mask = torch.ones(2), torch.tensor([True, False])
    for make in (torch.masked.masked_tensor, torch.masked.as_masked_tensor, torch.masked.MaskedTensor):
        with pytest.raises(NotImplementedError, match=r"mask=mask"):
            make(x, mask)


@alike
def test_embedding_bag_that_ends_before_the_indices_do(torch):
    """With `include_last_offset` the last offset may be smaller than the number of indices."""
    found, indices = [], torch.tensor([0, 1, 2, 3])
    for dtype in (torch.float32, torch.float64):
        table = torch.arange(12, dtype=dtype).reshape(6, 2) ** 2
        for mode in ("sum", "mean", "max"):
            for padding_idx in (None, 5, 2):
                if (dtype, mode, padding_idx) == (torch.float32, "mean", None):
                    continue  # torch divides by indices that it leaves out of the sum
                for offsets in ([0, 3, 3], [0, 3, 4], [0, 2, 2, 3]):
                    found.append(torch.nn.functional.embedding_bag(
                        indices, table, torch.tensor(offsets), mode=mode, include_last_offset=True,
                        padding_idx=padding_idx,
                    ))  # fmt: skip
    return found


@alike
def test_embedding_bag_says_which_index_is_wrong(torch):
    """PyTorch has two texts, by the loop it takes; ours has the words of both."""
    words = []
    for dtype in (torch.float32, torch.float64):
        for options in ({}, {"padding_idx": 0}, {"mode": "max"}, {"mode": "sum"}):
            for wrong in (-1, 6):
                table = torch.ones(6, 2, dtype=dtype)
                text = error(torch.nn.functional.embedding_bag, torch.tensor([[0, wrong]]), table, **options)
                words.append(any(part in text for part in (
                    f"Index 1 of input takes value {wrong} which is not in the valid range [0, 6)",
                    f"Expected idx >= 0 && idx < num_embeddings but found idx to be {wrong}",
                )))  # fmt: skip
    one, two, three = torch.zeros(2, dtype=torch.long), torch.zeros(2, 1, dtype=torch.long), torch.ones(2, 2, 2)
    return words, [
        error(torch.embedding_bag, torch.ones(2, 2), one.reshape(2, 1, 1), one[:1]),
        error(torch.embedding_bag, torch.ones(2, 2), one, two),
        error(torch.embedding_bag, three, one, one),
    ]


@alike
def test_pooling_of_what_is_empty(torch):
    """An empty batch has an empty result and gradient; other empty dimensions are errors."""
    found, F, nn = [], torch.nn.functional, torch.nn
    for n in (1, 2, 3):
        for kind in ("avg", "max"):
            pool = getattr(F, f"adaptive_{kind}_pool{n}d")
            for lead in ((0, 4), (1, 0), (0,), (2,)):
                x = torch.ones(*lead, *[5] * n, requires_grad=True)
                text = error(pool, x, 3)
                if text == "nothing" and 0 in lead[:1]:
                    pool(x, 3).sum().backward()
                    text = [pool(x, 3).shape, x.grad]
                found.append(text)
        pool = getattr(nn, f"MaxPool{n}d")(2, stride=2, return_indices=True)
        unpool = getattr(nn, f"MaxUnpool{n}d")(2, stride=2)
        x = torch.randn(0, 4, *[6] * n, requires_grad=True)
        out = unpool(*pool(x))
        out.sum().backward()
        empty = torch.ones(1, 0, *[3] * n)
        found += [out, x.grad, "Expected input to have non-zero size" in error(unpool, empty, empty.long())]
    return found


@alike
def test_legacy_constructors_take_sizes_without_dimensions(torch):
    makers = (torch.Tensor, torch.FloatTensor, torch.LongTensor, torch.ones(3).new, torch.ones(3).long().new)
    return [make(size).shape for make in makers for size in (torch.Size([]), torch.Size([2, 1]), [], ())]
