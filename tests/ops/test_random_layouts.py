"""What is drawn into a tensor depends on how it lies in memory: in place, in a graph and in a plan as in PyTorch."""

import numpy as np
import pytest

import tensorgrad as tg

torch = pytest.importorskip("torch", reason="PyTorch is the oracle of these tests and is not installed")

LAYOUTS = {
    "every other column": lambda lib, n: lib.zeros(n, 2 * n)[:, ::2],
    "one column": lambda lib, n: lib.zeros(n * n, 3)[:, 1],
    "every other row": lambda lib, n: lib.zeros(2 * n, n)[::2],
    "transposed": lambda lib, n: lib.zeros(n, n + 1).t(),
    "transposed, with gaps": lambda lib, n: lib.zeros(2 * n, n)[::2].t(),
    "permuted, with gaps": lambda lib, n: lib.zeros(3, n, 8).permute(2, 0, 1)[:, :2],
    "channels last": lambda lib, n: lib.zeros(2, 3, n, n).contiguous(memory_format=lib.channels_last),
}
SAMPLERS = {
    "normal_": lambda lib, x: x.normal_(1.0, 2.0),
    "uniform_": lambda lib, x: x.uniform_(-1, 1),
    "exponential_": lambda lib, x: x.exponential_(),
    "bernoulli_": lambda lib, x: x.bernoulli_(0.3),
    "bernoulli_ of a tensor": lambda lib, x: x.bernoulli_(lib.linspace(0, 1, x.numel()).reshape(x.shape)),
    "cauchy_": lambda lib, x: x.cauchy_(),
    "log_normal_": lambda lib, x: x.log_normal_(),
    "geometric_": lambda lib, x: x.geometric_(0.4),
    "random_": lambda lib, x: x.random_(3, 17),
    "dropout_": lambda lib, x: lib.dropout_(x.fill_(3.0), 0.4, True),
    "rrelu": lambda lib, x: lib.nn.functional.rrelu(x - 1, training=True),
    "trunc_normal_": lambda lib, x: lib.nn.init.trunc_normal_(x),
}


def drawn(lib, layout, sampler, n, way):
    """What was drawn, its strides, and what the generator gives next."""
    lib.manual_seed(5)
    x = LAYOUTS[layout](lib, n)
    call = SAMPLERS[sampler]
    if way == "graph":
        x.add_(lib.zeros(x.shape, requires_grad=True))
    if way == "plan" and lib is tg:
        call = tg.compile(call)
    for _ in range(3 if way == "plan" else 1):  # by the third call the plan draws
        made = call(lib, x)
    return made.detach().numpy(), made.stride(), lib.rand(3).numpy()


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_samples_are_pytorchs_in_every_layout(layout, sampler):
    for way in "eager", "graph", "plan":
        for n in 3, 7:  # numbers above and below 16, from which on normals are drawn in blocks
            found, expected = (drawn(lib, layout, sampler, n, way) for lib in (tg, torch))
            np.testing.assert_allclose(found[0], expected[0], rtol=1e-5, atol=1e-6, err_msg=f"{way}, {n}")
            assert found[1] == expected[1], (way, n)
            assert (found[2] == expected[2]).all(), (way, n)
