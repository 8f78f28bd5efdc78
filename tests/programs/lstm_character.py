"""A character-level language model: Embedding, a two-layer LSTM with carried state, and sampling from it."""

import torch
from torch import nn

TEXT = """
the tide comes in, the tide goes out, and no one asks the moon about the reason why it pulls the sea;
the moon, if asked, might answer: me? i only circle round and round. the sea has always liked the sound
of pebbles rolling on the shore, and so it comes again for more.
""".strip()


class CharRNN(nn.Module):
    def __init__(self, n_chars, n_hidden=48, n_layers=2, drop_prob=0.2):
        super().__init__()
        self.n_layers, self.n_hidden = n_layers, n_hidden
        self.embedding = nn.Embedding(n_chars, 24)
        self.lstm = nn.LSTM(24, n_hidden, n_layers, dropout=drop_prob, batch_first=True)
        self.dropout = nn.Dropout(drop_prob)
        self.fc = nn.Linear(n_hidden, n_chars)

    def forward(self, x, hidden):
        out, hidden = self.lstm(self.embedding(x), hidden)
        out = self.dropout(out).contiguous().view(-1, self.n_hidden)
        return self.fc(out), hidden

    def init_hidden(self, batch_size):
        weight = next(self.parameters()).data
        shape = (self.n_layers, batch_size, self.n_hidden)
        return weight.new(*shape).zero_(), weight.new(*shape).zero_()


def batches(encoded, batch_size, seq_len):
    """Consecutive windows of `batch_size` parallel stretches of the text, and the same one character later."""
    n = (len(encoded) - 1) // batch_size
    xs = encoded[: n * batch_size].view(batch_size, n)
    ys = encoded[1 : n * batch_size + 1].view(batch_size, n)
    for i in range(0, n - seq_len + 1, seq_len):
        yield xs[:, i : i + seq_len], ys[:, i : i + seq_len]


@torch.no_grad()
def sample(model, stoi, itos, length=12, prime="the ", temperature=0.8):
    model.eval()
    hidden = model.init_hidden(1)
    chars = list(prime)
    x = torch.tensor([[stoi[c] for c in prime]])
    for _ in range(length):
        logits, hidden = model(x, hidden)
        probs = torch.softmax(logits[-1] / temperature, dim=-1)
        top, where = probs.topk(8)
        choice = where[torch.multinomial(top, num_samples=1)]
        chars.append(itos[choice.item()])
        x = choice.view(1, 1)
    model.train()
    return "".join(chars)


def main(steps=20):
    torch.manual_seed(42)
    itos = sorted(set(TEXT))
    stoi = {c: i for i, c in enumerate(itos)}
    encoded = torch.tensor([stoi[c] for c in TEXT], dtype=torch.long)
    model = CharRNN(len(itos))
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    losses = []
    while len(losses) < steps:
        hidden = model.init_hidden(4)
        for x, y in batches(encoded, batch_size=4, seq_len=16):
            if len(losses) == steps:
                break
            hidden = tuple(h.detach() for h in hidden)  # or backward would reach back to the first window
            logits, hidden = model(x, hidden)
            loss = criterion(logits, y.reshape(-1))
            model.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), max_norm=5)
            optimizer.step()
            losses.append(loss.item())
        text = sample(model, stoi, itos)
        losses[-1] += stoi[text[-1]]  # a different text would show
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(main()):
        print(f"step {step}: loss {loss:.4f}")
