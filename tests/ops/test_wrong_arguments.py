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
}


@pytest.mark.parametrize("name", CALLS)
def test_errors_are_of_pytorchs_type(name):
    def scenario(torch):
        return error(CALLS[name], torch).split(":")[0]

    scenario.__name__ = scenario.__qualname__ = "test_scenario"
    alike(scenario)()


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
