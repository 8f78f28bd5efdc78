"""Where results of advanced indexing lie in memory, against PyTorch's: sources and index tensors of every layout."""

import pytest

import tensorgrad

torch = pytest.importorskip("torch")

SOURCES = {
    "rows": lambda T: base(T),
    "transposed": lambda T: base(T).transpose(1, 2),
    "permuted": lambda T: base(T).permute(3, 0, 2, 1),
    "channels_last": lambda T: base(T).contiguous(memory_format=T.channels_last),
    "expanded": lambda T: base(T)[:, :1].expand(-1, 3, -1, -1),
    "with steps": lambda T: base(T)[:, ::2, 1:],
    "one of a size": lambda T: base(T)[:1].transpose(0, 3),
    "a matrix": lambda T: base(T)[0, 0].t(),
    "complex": lambda T: T.complex(base(T), base(T)).transpose(0, 3),
}
INDICES = [
    "x[i]", "x[:, i]", "x[:, :, i]", "x[..., i]", "x[i, i]", "x[i, :, i]", "x[..., i, i]", "x[0, i]", "x[:, 0, i]",
    "x[i, 0]", "x[i, ..., 0]", "x[None, i]", "x[i, None]", "x[:, None, i]", "x[1:, i]", "x[i, 1:]", "x[::2, i, 1:]",
    "x[table]", "x[table.t()]", "x[:, table]", "x[:, table.t()]", "x[..., table.t()]", "x[table, i]", "x[table.t(), j]",
    "x[i, table[:, :1]]", "x[i[:, None], i]", "x[i[:, None], i[None]]", "x[i[:, None], :, i]", "x[wide]", "x[:, wide]",
    "x[i[:1]]", "x[:, i[:1]]", "x[x.real > 3]", "x[x.real.sum(-1) > 20]", "x[:, x.real[0] > 3]", "x[mask]",
    "x[..., mask_of_last]", "x[mask, ..., 0]", "x[mask, :, None]", "x[True]", "x[[0, 1]]", "x[:, [0, 1]]",
    "x[[0, 1], ..., [0, 1]]", "x[i.int()]",
]  # fmt: skip


def base(T):
    return T.arange(2 * 3 * 4 * 5, dtype=T.float32).view(2, 3, 4, 5)


def laid_out(T, source, index):
    x = SOURCES[source](T)
    table = T.tensor([[0, 0], [0, 1], [0, 0]]) % min(x.shape)
    names = {
        "x": x,
        "T": T,
        "i": T.tensor([0, 1, 0]) % min(x.shape),
        "j": T.tensor([0, 0, 0]),
        "table": table,
        "wide": table[:1].expand(3, 2),
        "mask": T.arange(x.shape[0]) < 1,
        "mask_of_last": T.arange(x.shape[-1]) % 2 == 0,
    }
    try:
        found = eval(index, names)
    except (IndexError, RuntimeError) as error:
        return type(error).__name__
    return tuple(found.shape), found.stride(), found.flatten().tolist()


@pytest.mark.parametrize("source", SOURCES)
def test_results_lie_where_those_of_pytorch_do(source):
    wrong = {}
    for index in INDICES:
        theirs, mine = laid_out(torch, source, index), laid_out(tensorgrad, source, index)
        if theirs != mine:
            wrong[index] = theirs, mine
    assert not wrong


@pytest.mark.parametrize("source", SOURCES)
def test_the_same_without_values(source):
    """On the meta device, where there are no masks."""
    x, meta = SOURCES[source](tensorgrad), SOURCES[source](tensorgrad).to("meta")
    i = tensorgrad.tensor([0, 0])
    for index in ((i,), (slice(None), i), (i[:, None], i), (..., i), (i, slice(1, None)), (i.view(2, 1).expand(2, 3),)):
        there = tuple([k.to("meta") if isinstance(k, tensorgrad.Tensor) else k for k in index])
        assert meta[there].stride() == x[index].stride(), index
