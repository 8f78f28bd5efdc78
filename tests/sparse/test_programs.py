"""Graph networks written with `torch.sparse`: the losses of their training are PyTorch's."""

import numpy as np
import pytest

import tensorgrad

torch = pytest.importorskip("torch", reason="torch is the oracle of these tests")

NODES, FEATURES, HIDDEN, CLASSES, STEPS = 120, 12, 8, 3, 20


def graph():
    """A random graph with self-loops, symmetric, and features and classes of its nodes."""
    rng = np.random.default_rng(0)
    pairs = rng.integers(0, NODES, (2, 300))
    keys = np.unique(np.concatenate([pairs[0] * NODES + pairs[1], pairs[1] * NODES + pairs[0],
                                     np.arange(NODES) * (NODES + 1)]))  # fmt: skip
    edges = np.stack([keys // NODES, keys % NODES])
    return edges, rng.standard_normal((NODES, FEATURES)).astype(np.float32), rng.integers(0, CLASSES, NODES)


def weights(T, *shapes):
    rng = np.random.default_rng(1)
    return [T.tensor((rng.standard_normal(s) * 0.3).astype(np.float32), requires_grad=True) for s in shapes]


def trained(T, parameters, forward, y):
    update = T.optim.Adam(parameters, lr=0.02)
    losses = []
    for _ in range(STEPS):
        update.zero_grad()
        loss = T.nn.functional.cross_entropy(forward(), y)
        loss.backward()
        update.step()
        losses.append(loss.item())
    return losses


def gcn(T):
    """Kipf and Welling, 2017: features of neighbours are averaged by a normalized COO adjacency matrix."""
    edges, x, y = graph()
    x, y, edges = T.tensor(x), T.tensor(y), T.tensor(edges)
    adjacency = T.sparse_coo_tensor(edges, T.ones(edges.shape[1]), (NODES, NODES)).coalesce()
    degree = T.sparse.sum(adjacency, 1).to_dense()
    scale = degree.pow(-0.5)
    adjacency = T.sparse_coo_tensor(edges, scale[edges[0]] * scale[edges[1]], (NODES, NODES))
    first, second = parameters = weights(T, (FEATURES, HIDDEN), (HIDDEN, CLASSES))

    def forward():
        return T.spmm(adjacency, T.relu(T.spmm(adjacency, x @ first)) @ second)

    return trained(T, parameters, forward, y)


def gat(T):
    """Veličković et al., 2018: the weights of neighbours are a softmax over the edges of each node."""
    edges, x, y = graph()
    x, y, edges = T.tensor(x), T.tensor(y), T.tensor(edges)
    project, left, right, last = parameters = weights(T, (FEATURES, HIDDEN), (HIDDEN,), (HIDDEN,), (HIDDEN, CLASSES))

    def forward():
        h = x @ project
        score = T.nn.functional.leaky_relu((h @ left)[edges[0]] + (h @ right)[edges[1]], 0.2)
        attention = T.sparse.softmax(T.sparse_coo_tensor(edges, score, (NODES, NODES)).coalesce(), 1)
        return T.nn.functional.elu(T.sparse.mm(attention, h)) @ last

    return trained(T, parameters, forward, y)


def sage(T):
    """Hamilton et al., 2017: a node's own features beside the mean of its neighbours', by a CSR matrix."""
    edges, x, y = graph()
    x, y, edges = T.tensor(x), T.tensor(y), T.tensor(edges)
    neighbours = T.sparse_coo_tensor(edges, T.ones(edges.shape[1]), (NODES, NODES)).to_sparse_csr()
    count = neighbours @ T.ones(NODES, 1)
    own, others, last = parameters = weights(T, (FEATURES, HIDDEN), (FEATURES, HIDDEN), (HIDDEN, CLASSES))

    def forward():
        return T.relu(x @ own + (neighbours @ x / count) @ others) @ last

    return trained(T, parameters, forward, y)


@pytest.mark.filterwarnings("ignore")  # torch says that its sparse layouts are in beta
@pytest.mark.parametrize("program", [gcn, gat, sage])
def test_losses_are_pytorchs(program):
    ours, theirs = program(tensorgrad), program(torch)
    assert theirs[-1] < theirs[0]
    np.testing.assert_allclose(ours, theirs, rtol=2e-4)
