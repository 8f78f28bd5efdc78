"""Wrong arguments of random functions, of einsum and of backward: PyTorch's type of error, naming the argument."""

import pytest

import tensorgrad
from tests.support.alike import alike, error

SAMPLERS = {
    "normal_": ("mean", "std"), "uniform_": ("from", "to"), "exponential_": ("lambd",), "geometric_": ("p",),
    "cauchy_": ("median", "sigma"), "log_normal_": ("mean", "std"), "random_": ("from", "to"), "bernoulli_": ("p",),
}  # fmt: skip


@pytest.mark.parametrize("wrong", ["a", None, [1.0], (), 1j], ids=repr)
@pytest.mark.parametrize("name", SAMPLERS)
def test_what_is_not_a_number_is_named(name, wrong):
    if name == "random_" and wrong is None:
        pytest.skip("random_(from, None) is the range of the dtype")
    for position, argument in enumerate(SAMPLERS[name]):
        arguments = [1.0] * position + [wrong]
        if name == "random_":
            arguments = [int(n) if n == 1.0 else n for n in arguments] if position else [wrong, 3]
        x = tensorgrad.ones(2)
        with pytest.raises(TypeError, match=rf"{name}\(\).*argument '{argument}'.*must be (float|int), not"):
            getattr(x, name)(*arguments)
        assert x.tolist() == [1, 1] and x._version == 0


CALLS = {
    "normal_ std": lambda t: t.ones(2).normal_(0, -1),
    "normal_ integers": lambda t: t.ones(2, dtype=t.int64).normal_(),
    "normal_ of a tensor": lambda t: t.ones(2).normal_(t.tensor(0.0), 1).shape,
    "normal str": lambda t: t.normal("a", 1.0, (2,)),
    "uniform_ reversed": lambda t: t.ones(2).uniform_(2, 1),
    "uniform_ too wide": lambda t: t.ones(2).uniform_(0, 1e40),
    "uniform_ bool": lambda t: t.ones(2).uniform_(False, True).shape,
    "bernoulli number": lambda t: t.bernoulli(2.0),
    "bernoulli 2": lambda t: t.bernoulli(t.tensor([2.0])),
    "bernoulli p": lambda t: t.bernoulli(t.ones(2), 2.0),
    "bernoulli str": lambda t: t.bernoulli(t.ones(2), "a"),
    "bernoulli_ 2": lambda t: t.ones(2).bernoulli_(2.0),
    "bernoulli_ str": lambda t: t.ones(2).bernoulli_("a"),
    "multinomial str": lambda t: t.multinomial(t.ones(2), "a"),
    "multinomial float": lambda t: t.multinomial(t.ones(2), 1.5),
    "multinomial 0": lambda t: t.multinomial(t.ones(2), 0),
    "multinomial too many": lambda t: t.multinomial(t.ones(2), 3),
    "multinomial list": lambda t: t.multinomial([1.0], 1),
    "exponential_ negative": lambda t: t.ones(2).exponential_(-1),
    "geometric_ 2": lambda t: t.ones(2).geometric_(2),
    "cauchy_ negative": lambda t: t.ones(2).cauchy_(0, -1),
    "random_ str": lambda t: t.ones(2).random_("a"),
    "random_ float": lambda t: t.ones(2).random_(1.5),
    "random_ reversed": lambda t: t.ones(2).random_(3, 1),
    "einsum int": lambda t: t.einsum(1, t.ones(2)),
    "einsum None": lambda t: t.einsum(None, t.ones(2)),
    "einsum operand": lambda t: t.einsum("i,i", 3, t.ones(2)),
    "backward str": lambda t: t.ones(2, requires_grad=True).sum().backward("a"),
    "backward int": lambda t: t.ones(2, requires_grad=True).sum().backward(1),
    "backward list": lambda t: t.ones(2, requires_grad=True).sum().backward([1.0]),
    "autograd.backward": lambda t: t.autograd.backward(t.ones(2, requires_grad=True).sum(), "a"),
    "autograd.grad": lambda t: t.autograd.grad(t.ones(2, requires_grad=True).sum(), "a"),
    "max keepdim": lambda t: t.ones(2, 2).max(keepdim=True),
    "max of two, keepdim": lambda t: t.max(t.ones(2), t.ones(2), keepdim=True),
    "max dim and other": lambda t: t.max(t.ones(2), 0, other=t.ones(2)),
    "min of three": lambda t: t.min(t.ones(2), t.ones(2), other=t.ones(2)),
    "var unbiased and correction": lambda t: t.var(t.ones(2, 2), 1, unbiased=True, correction=1),
    "std_mean unbiased and correction": lambda t: t.std_mean(t.ones(2), unbiased=False, correction=1),
    "var_mean unbiased, keepdim": lambda t: t.var_mean(t.ones(2), True, keepdim=True),
    "std correction": lambda t: t.std(t.ones(2), correction="a"),
    "masked_fill None": lambda t: t.ones(2).masked_fill(t.tensor([True, False]), None),
    "masked_fill list": lambda t: t.ones(2).masked_fill(t.tensor([True, False]), [1.5]),
    "masked_fill_ large": lambda t: t.ones(2).masked_fill_(t.tensor([True, False]), 2**70),
    "masked_scatter_ str": lambda t: t.ones(2).masked_scatter_("a", t.ones(2)),
    "masked_scatter_ source": lambda t: t.ones(2).masked_scatter_(t.tensor([True, False]), [1.0]),
    "heaviside_ float": lambda t: t.ones(2).heaviside_(1.5),
    "backward inputs": lambda t: t.ones(2, requires_grad=True).sum().backward(inputs="a"),
    # taken silently once
    "where large": lambda t: t.where(t.tensor([True]), 2**70, t.ones(1)),
    "where method, large": lambda t: t.ones(1).where(t.tensor([True]), -(2**70)),
    "fft n bool": lambda t: t.fft.fft(t.ones(4), n=True),
    "fft n large": lambda t: t.fft.rfft(t.ones(4), n=2**70),
    "fft dim bool": lambda t: t.fft.fft(t.ones(4, 4), dim=True),
    "matrix_rank tol and atol": lambda t: t.linalg.matrix_rank(t.eye(2), 0.5, atol=0.5),
    "matrix_rank mixed": lambda t: t.linalg.matrix_rank(t.eye(2), atol=t.ones(1), rtol=0.5),
    "matrix_rank, a number as a tensor": lambda t: t.linalg.matrix_rank(t.eye(2), atol=t.tensor(0.5), rtol=0.5).shape,
    "matrix_rank str": lambda t: t.linalg.matrix_rank(t.eye(2), atol="a"),
    "matrix_rank tensors": lambda t: t.linalg.matrix_rank(t.eye(2), atol=t.tensor(0.5), rtol=t.tensor(0.5)).shape,
    "pinv complex": lambda t: t.linalg.pinv(t.eye(2), rtol=1j),
    "pinv list": lambda t: t.linalg.pinv(t.eye(2), atol=[1.5]),
    "pinv rcond and atol": lambda t: t.linalg.pinv(t.eye(2), 0.5, atol=0.5),
    "pinv int": lambda t: t.linalg.pinv(t.eye(2), rtol=2).shape,
    "window dtype": lambda t: t.signal.windows.hann(4, dtype=[]),
    "window layout": lambda t: t.signal.windows.kaiser(4, layout=None),
    "window requires_grad": lambda t: t.signal.windows.bartlett(4, requires_grad=[]),
    "masked dtype": lambda t: t.masked.amax(t.ones(2), dtype=t.ones(2)),
    "masked softmax dtype": lambda t: t.masked.softmax(t.ones(2), 0, dtype=t.ones(2)),
    "masked softmax dim": lambda t: t.masked.softmax(t.ones(2), []),
    "masked sum dim": lambda t: t.masked.sum(t.ones(2), 2**70),
    "nuclear norm dtype": lambda t: t.ones(2, 2).norm("nuc", (0, 1), dtype="a"),
    "segment_reduce axis": lambda t: t.segment_reduce(t.ones(2), "sum", lengths=t.tensor([2]), axis=2),
    "segment_reduce large": lambda t: t.segment_reduce(t.ones(2), "sum", lengths=t.tensor([2]), initial=2**70),
    "segment_reduce offsets": lambda t: t.segment_reduce(t.ones(2), "sum", lengths=t.tensor([2]), offsets="a"),
    "randint bool": lambda t: t.randint(True, (2,)),
    "randint large": lambda t: t.randint(0, 2**70, (2,)),
    "histogram bool": lambda t: t.histogram(t.ones(2), True),
    "histogram range": lambda t: t.histogram(t.ones(2), 2, range=(1.0,)),
    "histogram edges": lambda t: t.histogram(t.ones(2), t.ones(2, 2)),
    "histogramdd bool": lambda t: t.histogramdd(t.ones(2, 1), True),
    "unfold_copy bool": lambda t: t.unfold_copy(t.ones(4), 0, 2, True),
    "narrow_copy large": lambda t: t.narrow_copy(t.ones(4), 0, 0, 2**70),
    "tile int": lambda t: t.tile(t.ones(2), 2),
    "permute int": lambda t: t.permute(t.ones(2), 0),
    "permute_copy int": lambda t: t.permute_copy(t.ones(2), 0),
    "flip int": lambda t: t.flip(t.ones(2), 0),
    "reshape int": lambda t: t.reshape(t.ones(2), 2),
    "broadcast_to int": lambda t: t.broadcast_to(t.ones(2), 2),
    "rot90 int": lambda t: t.rot90(t.ones(2, 2), 1, 0),
    "unflatten int": lambda t: t.ones(2).unflatten(0, 2),
    "pad int": lambda t: t.nn.functional.pad(t.ones(2), 2),
    "split_with_sizes int": lambda t: t.split_with_sizes(t.ones(2), 2),
    "empty_strided int": lambda t: t.empty_strided((2,), 1),
    "multi_dot tensor": lambda t: t.linalg.multi_dot(t.ones(2, 2, 2)),
    "tensorinv of a number": lambda t: t.linalg.tensorinv(t.tensor(1.5)),
    "gaussian_nll_loss int": lambda t: t.nn.functional.gaussian_nll_loss(t.ones(2), t.ones(2), 2),
    "gaussian_nll_loss reduction": lambda t: t.nn.functional.gaussian_nll_loss(t.ones(2), t.ones(2), 2.0, reduction=2),
    "poisson_nll_loss reduction": lambda t: t.nn.functional.poisson_nll_loss(t.ones(2), t.ones(2), reduction=2),
    "soft_margin_loss shapes": lambda t: t.nn.functional.soft_margin_loss(t.tensor(1.0), t.ones(2)),
    "interpolate corners": lambda t: t.nn.functional.interpolate(t.ones(1, 1, 2), 4, align_corners="a"),
    "as_strided size": lambda t: t.ones(2).as_strided(1, (1,)),
    "as_strided stride": lambda t: t.as_strided(t.ones(2), (1,), 1),
    "sum_to_size bool": lambda t: t.ones(2).sum_to_size(True),
    "sum_to_size lists": lambda t: t.ones(1, 2).sum_to_size([1], [2]),
    "sum_to_size 2**70": lambda t: t.ones(1, 2).sum_to_size(2**70),
    "broadcast_shapes float": lambda t: t.broadcast_shapes(1.5),
    "broadcast_shapes tensor": lambda t: t.broadcast_shapes(t.tensor(3)),
    "cosine_similarity eps": lambda t: t.nn.functional.cosine_similarity(t.ones(2), t.ones(2), dim=0, eps=-1.0),
    "sub of a bool": lambda t: t.sub(t.ones(2), True, alpha=2),
    "addcmul complex": lambda t: t.addcmul(t.ones(2), t.ones(2), t.ones(2), value=1j),
    "addcdiv complex": lambda t: t.ones(2).addcdiv(t.ones(2), t.ones(2), value=1j),
    "logical_and_ of a number": lambda t: t.ones(2).logical_and_(2),
    "max of a dimension": lambda t: t.max(t.ones(2), dim=t.tensor(1.5)),
    "stft onesided": lambda t: t.stft(t.ones(8), 4, window=t.ones(4), onesided=2, return_complex=True),
    "stft return_complex": lambda t: t.ones(8).stft(4, window=t.ones(4), return_complex="a"),
    "grid_sample corners": lambda t: t.nn.functional.grid_sample(
        t.ones(1, 1, 2, 2), t.zeros(1, 1, 1, 2), align_corners="a"
    ),
    "native_batch_norm": lambda t: t.native_batch_norm(t.ones(2, 2), None, None, None, None, True, "a", 1e-5),
    "native_batch_norm weight": lambda t: t.native_batch_norm(t.ones(2, 2), "a", None, None, None, True, 0.1, 1e-5),
    "exponential_": lambda t: t.ones(2).exponential_(t.ones(2)),
    "normal_ of nothing": lambda t: t.Tensor.normal_("a"),
    "tensordot dims": lambda t: t.tensordot(t.ones(2), t.ones(2), dims=None),
    "tril_indices device": lambda t: t.tril_indices(2, 2, dtype=t.float32, device=1.5),
    "window parameter": lambda t: t.signal.windows.gaussian(3, std=t.tensor([2.0])),
    "grid_sampler mode": lambda t: t.grid_sampler(t.ones(1, 1, 2, 2), t.zeros(1, 1, 1, 2), "a", 0, False),
}
# A size that 64 bits cannot hold, in a list and as one of several arguments.
LARGE = {
    "zeros": lambda t, n: t.zeros(n),
    "zeros of a list": lambda t, n: t.zeros((2, n)),
    "empty on meta": lambda t, n: t.empty((0, n), device="meta"),
    "randn": lambda t, n: t.randn(n, 2),
    "new_ones": lambda t, n: t.ones(2).new_ones(n),
    "view": lambda t, n: t.ones(2).view(n),
    "reshape": lambda t, n: t.ones(2).reshape(2, n),
    "expand": lambda t, n: t.ones(2).expand(n, 2),
    "repeat": lambda t, n: t.ones(2).repeat(n),
    "permute": lambda t, n: t.ones(2, 2).permute(0, n),
    "flip": lambda t, n: t.ones(2, 2).flip((0, n)),
    "roll": lambda t, n: t.ones(2, 2).roll((0, n), (0, 1)),
    "tile": lambda t, n: t.ones(2).tile(n),
    "unflatten": lambda t, n: t.ones(2).unflatten(0, (2, n)),
    "split_with_sizes": lambda t, n: t.split_with_sizes(t.ones(2), (2, n)),
    "pad": lambda t, n: t.nn.functional.pad(t.ones(2), (0, n)),
    "as_strided": lambda t, n: t.ones(2).as_strided((2,), (n,)),
    "resize_": lambda t, n: t.ones(2).resize_(n),
    "unfold": lambda t, n: t.nn.functional.unfold(t.ones(1, 1, 4, 4), n),
    "avg_pool2d": lambda t, n: t.nn.functional.avg_pool2d(t.ones(1, 1, 4, 4), (2, n)),
    "conv2d": lambda t, n: t.nn.functional.conv2d(t.ones(1, 1, 4, 4), t.ones(1, 1, 2, 2), stride=(1, n)),
}


@alike
def test_tensors_stand_for_numbers(t):
    x, windows, seen = t.tensor([[3.0, 1.0], [2.0, 5.0]]), t.signal.windows, []
    for dim in (0, 1):
        seen += [*x.max(dim=t.tensor(dim)), *t.min(x, dim=t.tensor(dim), keepdim=True), t.max(x, t.tensor(dim))]
    for name, values in {
        "normal_": (1.0, 2.0), "exponential_": (2.0,), "cauchy_": (1.0, 2.0), "log_normal_": (0.5, 0.5),
        "geometric_": (0.25,),
    }.items():  # fmt: skip
        for made in (values, [t.tensor(value) for value in values]):
            t.manual_seed(0)
            seen.append(getattr(t.empty(3), name)(*made))
    seen += [windows.exponential(4, tau=t.tensor(2)), windows.gaussian(4, std=t.tensor(0.5))]
    return [*seen, windows.exponential(4, center=t.tensor(1.0), sym=False), windows.kaiser(4, beta=t.tensor(2.0))]


@pytest.mark.parametrize("name", CALLS)
def test_errors_are_of_pytorchs_type(name):
    def scenario(torch):
        return error(CALLS[name], torch).split(":")[0]

    scenario.__name__ = scenario.__qualname__ = "test_scenario"
    alike(scenario)()


@pytest.mark.parametrize("size", [2**70, -(2**63) - 1], ids=["large", "small"])
@pytest.mark.parametrize("name", LARGE)
def test_sizes_beyond_64_bits(name, size):
    def scenario(torch):
        return error(LARGE[name], torch, size).split(":")[0]

    scenario.__name__ = scenario.__qualname__ = "test_scenario"
    alike(scenario)()


def test_the_place_of_a_size_beyond_64_bits_is_named():
    expected = "zeros(): argument 'size' failed to unpack the object at pos 2 with error \"Overflow when unpacking long"
    assert error(tensorgrad.zeros, (2, 2**70)).startswith(f"TypeError: {expected}")
    assert "permute(): argument 'dims' failed to unpack the object at pos 1" in error(tensorgrad.ones(2).permute, 2**70)


# What guards say, with the name that PyTorch has for the function, and the position of what the call does not name.
SENTENCES = {
    "by position": lambda t, x: t.hann_window(2.5),
    "a number": lambda t, x: t.renorm(x, "a", 0, 1.0),
    "a complex number": lambda t, x: t.renorm(x, 2, 0, 1j),
    "a str by position": lambda t, x: t.linalg.qr(x, 2),
    "a str by name": lambda t, x: t.linalg.qr(x, mode=2),
    "a flag by name": lambda t, x: t.linalg.vector_norm(x, keepdim="a"),
    "what can only be named": lambda t, x: t.linalg.lstsq(x, x, driver=2),
    "a dimension": lambda t, x: t.softmax(x, 1.5),
    "a dimension by name": lambda t, x: t.softmax(x, dim="a"),
    "of special": lambda t, x: t.special.softmax(x, "a"),
    "an order": lambda t, x: t.special.polygamma("a", x),
    "a tensor": lambda t, x: t.linalg.det([1.0]),
    "a tensor by name": lambda t, x: t.linalg.det(A=[1.0]),
    "a method": lambda t, x: x.argmax("a"),
    "a method's flag": lambda t, x: x.argmax(0, "a"),
    "a method, by name": lambda t, x: x.argmax(dim="a"),
    "a row": lambda t, x: t.unsqueeze(x, "a"),
    "a row as a method": lambda t, x: x.unsqueeze("a"),
    "a row, by name": lambda t, x: x.unsqueeze(dim="a"),
    "a method with more behind": lambda t, x: x.topk("a", 0),
    "a function with more behind": lambda t, x: t.topk(x, "a", 0),
    "a method's second": lambda t, x: x.topk(1, "a"),
    "a row's flag": lambda t, x: x.sum(0, "a"),
    "a list before": lambda t, x: t.cat([x], "a"),
    "in place": lambda t, x: x.mvlgamma_(1.5),
    "an operand of a method": lambda t, x: x.add("a"),
    "an operand of a function": lambda t, x: t.add(x, "a"),
    "an operand by name": lambda t, x: x.matmul(other="a"),
    "an operand behind another": lambda t, x: x.index_select(0, "a"),
    "a sampler": lambda t, x: x.exponential_("a"),
    "a method without a guard": lambda t, x: x.unflatten(0, "a"),
    "a function without a guard": lambda t, x: t.rot90(x, 1, "a"),
    "another method without a guard": lambda t, x: x.rot90(1, "a"),
    "a list of a method": lambda t, x: x.flip("a"),
    "a list of a function": lambda t, x: t.flip(x, "a"),
    "a number in the place of a list": lambda t, x: t.permute(x, 0),
    "repeats": lambda t, x: x.repeat("a"),
}


@pytest.mark.parametrize("name", SENTENCES)
def test_errors_read_as_in_pytorch(name):
    def scenario(torch):
        return error(SENTENCES[name], torch, torch.tensor([[1.0, 2.0], [3.0, 4.0]]))

    scenario.__name__ = scenario.__qualname__ = "test_scenario"
    alike(scenario)()


def test_positions_are_those_of_the_program_where_methods_are_wrapped():
    import tensorgrad.distributed.tensor

    with pytest.raises(TypeError, match=r"^add\(\): argument 'other' \(position 1\) must be Tensor, not str$"):
        tensorgrad.ones(2).add("a")


MATRICES = {
    "rank 1": [[1.0, 2.0], [2.0, 4.0]],
    "zeros": [[0.0, 0.0], [0.0, 0.0]],
    "rank 2 of 3": [[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [0.0, 0.0, 1.0]],
    "one of a batch": [[[2.0, 1.0], [1.0, 3.0]], [[1.0, 1.0], [1.0, 1.0]]],
}


@pytest.mark.parametrize("matrix", MATRICES)
@pytest.mark.parametrize("name", ["linalg.slogdet", "slogdet", "logdet"])
def test_derivatives_of_singular_matrices(name, matrix):
    """They are infinite or nan, by the order of operations: no error."""

    def scenario(torch):
        x = torch.tensor(MATRICES[matrix], dtype=torch.float64, requires_grad=True)
        function = torch.linalg.slogdet if name == "linalg.slogdet" else getattr(torch, name)
        made = function(x)
        (made if isinstance(made, torch.Tensor) else made[1]).sum().backward()
        return x.grad.shape, x.grad.isfinite().all().item()

    scenario.__name__ = scenario.__qualname__ = "test_scenario"
    alike(scenario)()


@pytest.mark.parametrize("name", ["bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1"])
def test_bessel_functions_in_float64(name):
    def scenario(torch):
        x = torch.tensor([1e-30, 0.1, 1, 2.404825557695773, 3.9, 5, 5.01, 8, 17.3, 50, 1e3, 0, -3, float("inf")])
        return getattr(torch.special, name)(x.double()), getattr(torch.special, name)(x)

    scenario.__name__ = scenario.__qualname__ = "test_scenario"
    alike(scenario, tolerance=1e-6)()


@pytest.mark.filterwarnings("ignore:Use of index_put_ on expanded")
@alike
def test_assigning_to_expanded_tensors(torch):
    found = []
    for value in (0.5, torch.tensor(0.5), torch.ones(3)):
        for index in (slice(None), Ellipsis, 0, (slice(None), 0), (0, 0), slice(0, 1), None, torch.tensor([0])):
            x = torch.zeros(3).expand(2, 3)
            found += [error(x.__setitem__, index, value).split(":")[0], x]
            x = torch.zeros(3, 1).expand(3, 3)
            found += [error(x.__setitem__, index, value).split(":")[0], x]
    return found


@alike
def test_nothing_is_detached_in_inference_mode(torch):
    leaf = torch.ones(2, requires_grad=True)
    view = leaf[:1]
    with torch.inference_mode():
        leaf.detach_()
        view.detach_()
    return leaf.requires_grad, view.requires_grad


@alike
def test_writes_to_the_bytes_of_a_storage_are_not_detected(torch):
    x = torch.ones(3, requires_grad=True)
    y = x.square()
    x.untyped_storage().fill_(0)
    y.sum().backward()
    z = torch.ones(3)
    z.untyped_storage()[0] = 1
    z.untyped_storage().copy_(torch.zeros(3).untyped_storage())
    return x.grad, x._version, z, z._version
