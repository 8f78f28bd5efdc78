"""What changes and what stays when a module or a tensor is converted, copied or shared."""

import copy
import warnings

from tests.support.alike import alike, error


@alike
def test_gradients_stay_the_same_objects(torch):
    made = []
    for convert in (lambda m: m.half(), lambda m: m.double(), lambda m: m.to(torch.bfloat16), lambda m: m.float()):
        m = torch.nn.Linear(2, 2)
        m(torch.ones(1, 2)).sum().backward()
        weight, grad = m.weight, m.weight.grad
        convert(m)
        made.append((m.weight is weight, m.weight.grad is grad, str(m.weight.grad.dtype), m.weight.grad.float()))
    return made


@alike
def test_storages_say_that_they_are_shared(torch):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x = torch.ones(2)
        before = x.is_shared(), x.storage().is_shared(), x.untyped_storage().is_shared()
        x.share_memory_()
        return before, x.is_shared(), x.storage().is_shared(), x.untyped_storage().is_shared(), x[1:].is_shared()


@alike
def test_an_embedding_of_nothing_has_sparse_gradients(torch):
    made = []
    for rows, columns, count in ((0, 0, 0), (3, 0, 2), (3, 2, 0)):
        e = torch.nn.Embedding(rows, columns, sparse=True)
        e(torch.zeros(count, dtype=torch.int64)).sum().backward()
        made.append((list(e.weight.grad.shape), e.weight.grad.is_sparse, list(e.weight.grad.to_dense().shape)))
    return made


@alike
def test_copies_onto_memory_that_is_read(torch):
    def of(write):
        x = torch.arange(9.0).view(3, 3)
        return error(write, x) if error(write, x) != "nothing" else (write(torch.arange(9.0).view(3, 3)), "done")[1]

    return [of(lambda x: x.t().copy_(x)), of(lambda x: x.copy_(x)), of(lambda x: x[:2].copy_(x[1:])),
            of(lambda x: x[0].copy_(x[1])), of(lambda x: x[:, 0].copy_(x[:, 1]))]  # fmt: skip


@alike
def test_masked_fill_of_expanded_tensors_warns(torch):
    made = []
    for mask in ([True, True, False], [False, False, True], [False] * 3):
        x = torch.zeros(1).expand(3)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            x.masked_fill_(torch.tensor(mask), 2.0)
        made.append((x.tolist(), [str(w.message).partition(" (Triggered")[0] for w in caught]))
    return made


@alike
def test_sizes_are_of_integers(torch):
    made = [torch.Size([torch.tensor(2), 3]), torch.Size(range(2)), torch.Size(n for n in (1, 2)), torch.Size()]
    wrong = ("a", [1.5], [2, None], [1, [2]])
    return [[type(n).__name__ for n in size] for size in made], [error(torch.Size, w) for w in wrong]


@alike
def test_dtypes_are_not_made(torch):
    return error(torch.dtype, "float"), error(torch.dtype), copy.deepcopy(torch.float32) is torch.float32


@alike
def test_a_generator_returns_itself(torch):
    g = torch.Generator()
    return g.set_state(g.get_state()) is g
