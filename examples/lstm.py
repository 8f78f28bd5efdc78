import tensorgrad as torch

__doc__ = """An LSTM learns to spell names, and generates new ones.

    python examples/lstm.py                       names from Python's standard library
    python examples/lstm.py --data FOLDER         32,033 first names

Measured on the 32,033 names: 2.116 nats per held-out letter after 600 steps, in 8.3 s under tensorgrad and 9.5 s under
torch; both generate the same names. Processor time; README.md describes the machine.

S. Hochreiter and J. Schmidhuber, Long Short-Term Memory, Neural Computation 1997.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from common import Checkpoint, make_parser, progress, run, say, seconds, start
from data import load_names
from picture import save_curves

nn, F = torch.nn, torch.nn.functional
END = 0  # marks the start and the end of every name; the letters are 1 to 26
IGNORED = -100  # cross_entropy ignores positions with this target


class Speller(nn.Module):
    """Reads a name letter by letter, and predicts the next letter after each."""

    def __init__(self, letters=27, embed=32, width=128):
        super().__init__()
        self.embed = nn.Embedding(letters, embed)
        self.lstm = nn.LSTM(embed, width, batch_first=True)
        self.head = nn.Linear(width, letters)

    def forward(self, letters, state=None):
        outputs, state = self.lstm(self.embed(letters), state)
        return self.head(outputs), state


def encode(names):
    """Two tensors (name, position): the letters to read, and the next letters. Shorter names are padded at the end."""
    length = max(map(len, names)) + 1
    codes = [[ord(letter) - ord("a") + 1 for letter in name] for name in names]
    inputs = torch.tensor([[END] + code + [END] * (length - 1 - len(code)) for code in codes])
    targets = torch.tensor([code + [END] + [IGNORED] * (length - 1 - len(code)) for code in codes])
    return inputs, targets


def loss_of(model, inputs, targets):
    scores, _ = model(inputs)
    return F.cross_entropy(scores.flatten(0, 1), targets.flatten(), ignore_index=IGNORED)


@torch.no_grad()
def generate(model, count, device, longest=15):
    """Generates `count` names in parallel: each letter is sampled, and fed back together with the state."""
    letters, state, spelled = torch.full((count, 1), END, device=device), None, []
    for _ in range(longest):
        scores, state = model(letters, state)
        letters = torch.multinomial(scores[:, -1].softmax(dim=-1), 1)
        spelled.append(letters)
    names = []
    for row in torch.cat(spelled, dim=1).tolist():
        row = row[: row.index(END)] if END in row else row
        names.append("".join(chr(ord("a") + code - 1) for code in row))
    return names


def main():
    parser = make_parser(__doc__, "lstm", steps=600, batch_size=64, width=128, samples=20)
    parser.add_argument("--lr", type=float, default=4e-3, help="learning rate of the first step (%(default)s)")
    options = start(torch, parser)

    names = load_names(options.data)
    inputs, targets = (part.to(options.device) for part in encode(names))
    # The list is sorted, so the held-out names are chosen at random.
    order = torch.randperm(len(names)).to(options.device)
    train, test = order[len(names) // 10 :], order[: len(names) // 10]
    model = Speller(width=options.width).to(options.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=options.lr)
    checkpoint = Checkpoint(torch, options, model=model, optimizer=optimizer)
    print(f"{len(names):,} names, {len(test):,} held out, {sum(p.numel() for p in model.parameters()):,} parameters")

    every = max(1, options.steps // 10)
    for step in progress(options.steps, checkpoint.done):
        for group in optimizer.param_groups:
            group["lr"] = options.lr * (1 - step / options.steps)
        chosen = train[torch.randint(len(train), (options.batch_size,)).to(options.device)]
        loss = loss_of(model, inputs[chosen], targets[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step < 3:
            say(f"step {step + 1}  loss {loss.item():.6f}")
        if (step + 1) % every == 0:
            with torch.no_grad():
                held_out = loss_of(model, inputs[test[:1000]], targets[test[:1000]]).item()
            say(f"step {step + 1}  loss {loss.item():.4f}  held out {held_out:.4f}  {seconds(options)}")
            checkpoint.save(step + 1, train=loss.item(), test=held_out)

    known = set(names)
    print(
        "generated:",
        ", ".join(
            name + ("" if name not in known else " (known)")
            for name in generate(model, options.samples, options.device)
        ),
    )
    save_curves(torch, checkpoint.history, options.out / "lstm.svg", "Cross entropy per letter")
    print(f"picture: {options.out / 'lstm.svg'}; weights: {checkpoint.file}; {seconds(options)} in all")


if __name__ == "__main__":
    run(main)
