"""`record`: what it notes, what it refuses, and that it leaves nothing behind."""

import threading
from collections import namedtuple
from dataclasses import dataclass

import numpy as np
import pytest

import tensorgrad as torch
import tensorgrad.distributed.tensor  # which wraps methods of Tensor: reads by these are the program's as well
from tensorgrad import nn
from tensorgrad.capture import GuardError, ReadError, record
from tensorgrad.capture.traced import TracedArray
from tensorgrad.dispatch import templates
from tensorgrad.rows.kernel_tables import OPS
from tensorgrad.rows.switches import LOCAL, SLOW
from tensorgrad.storage.cpu import READERS
from tensorgrad.tensor import Tensor
from tests.capture.compare import bits


def kinds(recording):
    return [effect.kind for effect in recording.effects]


def targets(recording):
    return [n.name for n in recording.graph.nodes if n.op == "call_function"]


# --- the graph -------------------------------------------------------------------------------------------------------


def test_nodes_are_rows_with_metadata():
    recording = record(lambda x: torch.softmax(x.float(), -1).sum(0), torch.ones(2, 3, dtype=torch.float64))
    nodes = [n for n in recording.graph.nodes if n.op == "call_function"]
    assert [n.target.op.name for n in nodes] == ["to_copy", "softmax", "sum"]
    assert [(tuple(n.meta["val"].shape), n.meta["val"].dtype) for n in nodes] == [
        ((2, 3), torch.float32), ((2, 3), torch.float32), ((3,), torch.float32)
    ]  # fmt: skip
    recording.graph.lint()


def test_parameters_and_other_tensors_from_outside_keep_their_identity():
    layer, scale = nn.Linear(2, 2), torch.tensor(3.0)
    recording = record(lambda x: layer(x) * scale, torch.ones(1, 2))
    assert recording.lifted["weight"] is layer.weight and recording.lifted["bias"] is layer.bias
    assert recording.lifted["_tensor"] is scale
    with torch.no_grad():
        layer.weight.fill_(2.0)
        scale.fill_(1.0)
    assert bits(recording(torch.ones(1, 2))) == bits(layer(torch.ones(1, 2)))


Pair = namedtuple("Pair", "first rest")


@dataclass
class Output:
    loss: Tensor
    hidden: tuple = ()


def test_results_in_all_kinds_of_containers():
    def program(x, *, other):
        return {"pair": Pair(x + 1, [x * 2, None, 3, "text"]), "output": Output(x.sum(), (other["y"], x))}

    x, y = torch.ones(2), torch.zeros(2)
    recording = record(program, x, other={"y": y})
    again = recording(x, other={"y": y})
    expected = program(x, other={"y": y})
    assert type(again["pair"]) is Pair and type(again["output"]) is Output
    assert bits(again) == bits(expected) == bits(recording.result)
    assert again["output"].hidden[1] is x and again["output"].hidden[0] is y


def test_other_arguments_than_recorded_are_refused():
    recording = record(lambda x, n: x * n, torch.ones(2), 3)
    for args in [
        (torch.ones(3), 3),
        (torch.ones(2, dtype=torch.float64), 3),
        (torch.ones(2), 4),
        (torch.ones(4)[::2], 3),
    ]:
        with pytest.raises(ValueError, match="recorded"):
            recording(*args)
    twice = record(lambda x, y: x.add_(1) + y, torch.ones(2), torch.ones(2))
    x = torch.ones(2)
    with pytest.raises(ValueError):
        twice(x, x)


# --- effects ---------------------------------------------------------------------------------------------------------


def test_writes_to_inputs_and_to_what_is_outside():
    buffer = torch.zeros(2, 2)

    def program(x):
        x[0] = 5
        buffer[1].add_(x)
        y = buffer.t()
        y.mul_(2)
        return y[0] + x

    x = torch.tensor([1.0, 2.0])
    recording = record(program, x)
    assert kinds(recording).count("write") == 3
    assert x.tolist() == [5.0, 2.0] and buffer.tolist() == [[0.0, 0.0], [10.0, 4.0]]
    after, z = buffer.clone(), torch.tensor([7.0, 8.0])
    found = recording(z)
    replayed = buffer.clone()
    buffer.copy_(after)
    assert bits(program(torch.tensor([7.0, 8.0]))) == bits(found) and bits(buffer) == bits(replayed)
    assert z.tolist() == [5.0, 8.0]


def test_memory_made_inside_is_new_in_each_run():
    def program(x):
        total = torch.zeros(2)
        total += x
        kept = torch.ones(2)
        return total, kept

    recording = record(program, torch.ones(2))
    one, two = recording(torch.ones(2)), recording(torch.ones(2))
    assert bits(one) == bits(two) == bits(program(torch.ones(2)))
    one[1].add_(1)
    assert bits(recording(torch.ones(2))) == bits(two)


def test_random_draws_are_made_again_in_their_order():
    def program(x):
        torch.rand(3)  # unused, but the next one follows it
        return torch.nn.functional.dropout(x, 0.5) + torch.randn(8).uniform_() + torch.bernoulli(x * 0.5)

    torch.manual_seed(3)
    recording = record(program, torch.ones(8))
    assert kinds(recording).count("random") == 5
    torch.manual_seed(5)
    expected = program(torch.ones(8))
    torch.manual_seed(5)
    assert bits(recording(torch.ones(8))) == bits(expected)


def test_a_seed_that_is_set_inside_is_set_again():
    def program(x):
        torch.manual_seed(4)
        return torch.rand_like(x)

    recording = record(program, torch.ones(2))
    assert bits(recording(torch.ones(2))) == bits(recording.result)
    with pytest.raises(ReadError, match="seeded from the system"):
        record(lambda: torch.seed())


def test_going_back_to_a_state_of_the_generator():
    def program(x):
        with torch.random.fork_rng():
            noise = torch.rand_like(x)
        return noise, torch.rand_like(x)

    torch.manual_seed(1)
    recording = record(program, torch.ones(2))
    assert bits(recording.result[0]) == bits(recording.result[1])
    torch.manual_seed(2)
    expected = bits([program(torch.ones(2)), torch.rand(2)])
    torch.manual_seed(2)
    assert bits([recording(torch.ones(2)), torch.rand(2)]) == expected


def test_gradients_are_set_or_added_to():
    w = torch.tensor([1.0, 2.0], requires_grad=True)

    def program(x):
        (x * w * w).sum().backward()

    recording = record(program, torch.ones(2))
    assert w.grad.tolist() == [2.0, 4.0] and w.grad.__class__ is Tensor
    with pytest.raises(GuardError, match="None"):
        recording(torch.ones(2))
    assert w.grad.tolist() == [2.0, 4.0]  # nothing was done
    w.grad = None
    recording(torch.full((2,), 3.0))
    assert w.grad.tolist() == [6.0, 12.0]

    kept = w.grad
    adding = record(program, torch.ones(2))
    assert w.grad is kept and kept.tolist() == [8.0, 16.0]
    adding(torch.ones(2))
    assert w.grad is kept and kept.tolist() == [10.0, 20.0]


def test_gradients_of_inputs():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    recording = record(lambda x: x.exp().sum().backward(), x)
    y = torch.tensor([3.0, 4.0], requires_grad=True)
    recording(y)
    assert bits(y.grad) == bits(y.detach().exp()) and bits(x.grad) == bits(x.detach().exp())


def test_autograd_grad_and_second_derivatives():
    def program(x):
        (g,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
        return torch.autograd.grad(g.sum(), x)[0]

    x = torch.tensor([1.0, 2.0], requires_grad=True)
    recording = record(program, x)
    y = torch.tensor([3.0, 5.0], requires_grad=True)
    assert bits(recording(y)) == bits(program(y)) and bits(recording.result) == bits(program(x))


@pytest.mark.parametrize(
    "program",
    [
        torch.func.vmap(lambda x: (x * x).sum()),
        torch.func.grad(lambda x: x.sin().sum()),
        torch.func.vmap(torch.func.grad(lambda x: x.sin().sum())),
        lambda x: torch.func.jvp(torch.sin, (x,), (torch.ones_like(x),)),
        torch.func.jacrev(lambda x: x.sum(0).tanh()),
        torch.func.hessian(lambda x: (x**3).sum()),
    ],
    ids=["vmap", "grad", "vmap of grad", "jvp", "jacrev", "hessian"],
)
def test_transforms_inside_are_seen_where_they_end(program):
    x, y = torch.tensor([[0.1, 0.2], [0.3, 0.4]]), torch.tensor([[0.5, 0.6], [0.7, 0.8]])
    recording = record(program, x)
    assert bits(recording.result) == bits(program(x)) and bits(recording(y)) == bits(program(y))


def test_gradients_through_writes_to_views():
    def program(x, y):
        z = x.clone()
        z[1].mul_(y)
        z.t()[0] = y[:2] * 2
        return torch.autograd.grad((z * z).sum(), (x, y))

    def inputs(seed):
        torch.manual_seed(seed)
        return torch.rand(2, 3, requires_grad=True), torch.rand(3, requires_grad=True)

    recording = record(program, *inputs(0))
    assert bits(recording.result) == bits(program(*inputs(0)))
    assert bits(recording(*inputs(1))) == bits(program(*inputs(1)))


def test_custom_functions_are_seen_where_they_end():
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x * x

        @staticmethod
        def backward(ctx, g):
            return g * 3 * ctx.saved_tensors[0] ** 2

    def program(x):
        return torch.autograd.grad(Cube.apply(x).sum(), x)[0]

    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = torch.tensor([3.0, 5.0], requires_grad=True)
    assert bits(record(program, x)(y)) == bits(program(y))


# --- reads -----------------------------------------------------------------------------------------------------------

READS = {
    "item": lambda x: x.sum().item(),
    "bool": lambda x: bool(x.sum() > 0),
    "if": lambda x: x if x.sum() > 0 else -x,
    "float": lambda x: float(x.sum()),
    "int": lambda x: int(x.sum()),
    "tolist": lambda x: (x + 1).tolist(),
    "numpy": lambda x: (x + 1).numpy(),
    "asarray": lambda x: np.asarray(x + 1),
    "numpy's functions": lambda x: np.add(1, (x + 1).detach()),
    "format": lambda x: f"{x.sum():.2f}",
    "repr": lambda x: repr(x + 1),
    "of an input": lambda x: x.tolist(),
    "numpy of an input": lambda x: x.numpy(),
    "index": lambda x: [1, 2, 3][x.sum().long() % 3],
    "torch.tensor": lambda x: torch.tensor([x.sum(), 1.0]),
    "arange": lambda x: torch.arange(x.sum().item()),
}


@pytest.mark.parametrize("name", READS)
def test_reads_raise(name):
    with pytest.raises(ReadError, match="is read as"):
        record(READS[name], torch.ones(2))
    assert not LOCAL.transforms and "capture" not in SLOW and not READERS


def test_reads_of_parameters_and_buffers_raise():
    layer = nn.Linear(2, 2)
    for read in (
        lambda w: w[0, 0].item(),
        lambda w: w.tolist(),
        lambda w: w.detach().numpy(),
        lambda w: w.data.numpy(),
    ):
        with pytest.raises(ReadError, match="is read as"):
            record(lambda x, read=read: x * read(layer.weight), torch.ones(2))


def test_constants_can_be_read():
    recording = record(lambda x: x * torch.tensor([1.0, 2.0]).tolist()[1], torch.ones(2))
    assert recording(torch.full((2,), 3.0)).tolist() == [6.0, 6.0]


def test_noted_reads_are_checked_when_the_graph_runs():
    def program(x):
        return x + 1 if x.sum() > 0 else x - 1

    recording = record(program, torch.ones(2), on_read="note")
    assert kinds(recording) == ["read"]
    assert recording(torch.full((2,), 5.0)).tolist() == [6.0, 6.0]
    with pytest.raises(GuardError, match="True"):
        recording(-torch.ones(2))


@pytest.mark.parametrize(
    "program, good, bad",
    [
        (lambda x: x[x > 0].sum() / len(x[x > 0]), [1.0, -2.0, 3.0], [1.0, 2.0, 3.0]),
        (lambda x: torch.nonzero(x > 0).float().mean(), [5.0, -2.0, 3.0], [1.0, 2.0, 3.0]),
        (lambda x: x.repeat_interleave(x.long()), [2.0, 0.0, 1.0], [1.0, 2.0, 0.0]),
    ],
)
def test_sizes_that_depend_on_values_are_checked(program, good, bad):
    recording = record(program, torch.tensor([2.0, 0.0, 1.0]))
    assert bits(recording(torch.tensor([2.0, 0.0, 1.0]))) == bits(program(torch.tensor([2.0, 0.0, 1.0])))
    for values in (good, bad):
        expected = bits(program(torch.tensor(values)))
        try:
            assert bits(recording(torch.tensor(values))) == expected
        except GuardError:
            assert values is bad or program.__code__.co_names[0] == "repeat_interleave"


def test_other_checks_of_arguments():
    with pytest.raises(ValueError, match="on_read"):
        record(lambda: 1, on_read="ignore")
    with pytest.raises(RuntimeError, match="inside"):
        record(lambda: record(lambda: 1))
    with pytest.raises(NotImplementedError, match="sparse"):
        record(lambda x: x.to_sparse(), torch.eye(2))


# --- what is left behind ---------------------------------------------------------------------------------------------


def test_nothing_is_left_behind():
    kept = {}

    def program(x):
        kept["detached"], kept["data"], kept["view"] = (x * 2).detach(), (x * 2).data, (x * 2)[0:1]
        kept["plain"] = torch.zeros(2)
        return x + 1

    recording = record(program, torch.ones(2))
    count = len(recording.graph.nodes)
    assert not LOCAL.transforms and "capture" not in SLOW and not READERS
    for tensor in (*kept.values(), recording.result):
        assert tensor._array.__class__ is np.ndarray
        assert (tensor + 1).sum().item() > 0
    assert len(recording.graph.nodes) == count


def test_errors_inside_leave_nothing_behind():
    layer, kept = nn.Linear(2, 2), []

    def program(x):
        kept.append(layer(x * 1))
        x.add_(1)
        raise KeyError("inside")

    x = torch.ones(1, 2)
    with pytest.raises(KeyError):
        record(program, x)
    assert not LOCAL.transforms and "capture" not in SLOW and not READERS
    assert all(t._array.__class__ is np.ndarray for t in (x, layer.weight, *kept))
    kept[0].sum().backward()
    assert layer.weight.grad.shape == (2, 2)
    with pytest.raises(RuntimeError, match=r"shape|size|mat"):
        record(lambda x: x @ torch.ones(3, 3), torch.ones(2, 2))
    assert not LOCAL.transforms


def test_other_threads_are_not_recorded():
    layer, seen = nn.Linear(2, 2), []
    begin, done = threading.Event(), threading.Event()

    def other():
        begin.wait(60)
        y = layer(torch.ones(1, 2)).sum()
        y.backward()
        seen.append((y.item(), y._array.__class__))
        done.set()

    thread = threading.Thread(target=other)
    thread.start()

    def program(x):
        y = x + 1
        begin.set()
        assert done.wait(60)
        return y * 2

    recording = record(program, torch.ones(1, 2))
    thread.join()
    assert targets(recording) == ["add", "mul"] and seen[0][1] is np.ndarray


def test_traced_tensors_are_refused_in_other_threads():
    errors = []

    def program(x):
        y = x + 1

        def use():
            try:
                y.sum()
            except RuntimeError as error:
                errors.append(str(error))

        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
        return y

    record(program, torch.ones(2))
    assert len(errors) == 1 and "another thread" in errors[0]


def test_the_fast_path_knows_nothing_of_it():
    for name in ("add", "matmul", "sum", "view_as_real", "layer_norm"):
        texts = [templates.forward(OPS[name]), templates.forward(OPS[name], "plain"), templates.backward(OPS[name])]
        assert not any(word in text.lower() for text in texts for word in ("captur", "record(", "traced"))
    assert TracedArray not in OPS["add"].compiled.kernels
