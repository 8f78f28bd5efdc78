"""Programs of small tensors, as courses and papers have them: hundreds of ops, whose calls take the time."""

from __future__ import annotations

from benchmarks.rows import Row, drawn, models, whole


def by_hand(torch, batch: int = 32, letters: int = 27, context: int = 3, width: int = 10, hidden: int = 64):
    """A language model of letters whose gradients are written out, one op at a time, without any graph."""
    table, x, y = (
        drawn(torch, letters, width),
        whole(torch, letters, batch, context),
        whole(torch, letters, batch, seed=1),
    )
    first, shift = drawn(torch, context * width, hidden, seed=1) * 0.3, drawn(torch, hidden, seed=2) * 0.1
    gain, offset = torch.ones(1, hidden), torch.zeros(1, hidden)
    second, bias = drawn(torch, hidden, letters, seed=3) * 0.1, drawn(torch, letters, seed=4) * 0.1

    def gradients():
        rows = table[x]
        flat = rows.view(batch, -1)
        before = flat @ first + shift
        apart = before - before.mean(0, keepdim=True)
        scale = ((apart**2).sum(0, keepdim=True) / (batch - 1) + 1e-5) ** -0.5
        normal = apart * scale
        h = torch.tanh(gain * normal + offset)
        logits = h @ second + bias
        shifted = logits - logits.max(1, keepdim=True).values
        counts = shifted.exp()
        shares = counts * counts.sum(1, keepdim=True) ** -1
        loss = -shares.log()[range(batch), y].mean()

        d_logits = shares.clone()
        d_logits[range(batch), y] -= 1
        d_logits /= batch
        d_h = d_logits @ second.T
        d_second, d_bias = h.T @ d_logits, d_logits.sum(0)
        d_pre = (1.0 - h**2) * d_h
        d_gain, d_offset = (normal * d_pre).sum(0, keepdim=True), d_pre.sum(0, keepdim=True)
        d_normal = gain * d_pre
        sums = d_normal.sum(0), (d_normal * normal).sum(0)
        d_before = scale / batch * (batch * d_normal - sums[0] - batch / (batch - 1) * normal * sums[1])
        d_first, d_shift = flat.T @ d_before, d_before.sum(0)
        d_rows = (d_before @ first.T).view(rows.shape)
        d_table = torch.zeros_like(table)
        for i in range(batch):
            for k in range(context):
                d_table[x[i, k]] += d_rows[i, k]
        return loss, d_table, d_first, d_shift, d_gain, d_offset, d_second, d_bias

    def step():
        loss, *found = gradients()
        for value, slope in zip((table, first, shift, gain, offset, second, bias), found, strict=True):
            value.data += -1e-5 * slope
        return loss

    def results():
        found = gradients()
        return [*found[:3], *found[4:]]  # a bias before a normalization has no gradient but rounding errors

    return step, results


def tangent_kernel(torch, rows: int = 20, others: int = 5, width: int = 32, hidden: int = 64, outputs: int = 4):
    """The neural tangent kernel between two batches: products of the Jacobians of a small network."""
    torch.manual_seed(0)
    layer, relu, func = torch.nn.Linear, torch.nn.ReLU, torch.func
    network = torch.nn.Sequential(layer(width, hidden), relu(), layer(hidden, hidden), relu(), layer(hidden, outputs))
    values = {name: p.detach() for name, p in network.named_parameters()}
    x, y = drawn(torch, rows, width), drawn(torch, others, width, seed=1)

    def output(values, row):
        return func.functional_call(network, values, (row.unsqueeze(0),)).squeeze(0)

    def jacobians(batch):
        found = func.vmap(func.jacrev(output), (None, 0))(values, batch)
        return [j.flatten(2) for j in found.values()]

    def step():
        pairs = zip(jacobians(x), jacobians(y), strict=True)
        return torch.stack([torch.einsum("naf,mbf->nmab", a, b) for a, b in pairs]).sum(0)

    return step, lambda: [step()]


def small_gpt(torch):
    """A training step of a GPT of two layers and 32 features, on four sequences of eight letters."""
    torch.manual_seed(0)
    model = models.gpt(torch, layers=2, width=32, heads=4, context=8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x, y = whole(torch, 65, 4, 8), whole(torch, 65, 4, 8, seed=1)

    def step():
        loss = torch.nn.functional.cross_entropy(model(x).view(-1, 65), y.view(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return step, lambda: [step(), step()]


ROWS = [
    Row("network of letters, gradients by hand", by_hand),
    Row("tangent kernel of an MLP, 20×5", tangent_kernel),
    Row("GPT 2×32, context 8, batch 4, AdamW", small_gpt),
]
