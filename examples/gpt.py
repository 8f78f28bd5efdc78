import tensorgrad as torch

__doc__ = """A small GPT learns to write, character by character: like Shakespeare, or like Python's documentation.

    python examples/gpt.py                        40,000 characters of docstrings from Python's library
    python examples/gpt.py --data FOLDER          the 1.1 million of Shakespeare's plays
    python examples/gpt.py --resume --prompt "JULIET:" --steps 1      continue from a checkpoint and write more

Measured on all 1.1 million: 1.938 nats per held-out character after 1,000 steps, in 67 s under tensorgrad and 52 s
under torch, with the same sample under both. Processor time; README.md describes the machine.

A. Radford et al., Language Models are Unsupervised Multitask Learners, 2019.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from common import Checkpoint, make_parser, progress, run, say, seconds, start
from data import load_text
from picture import save_curves

nn, F = torch.nn, torch.nn.functional


class Block(nn.Module):
    """Causal attention, then a small network on each position separately."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def attend(self, x):
        batch, length, width = x.shape
        qkv = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(*qkv.unbind(0), is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))

    def forward(self, x):
        x = x + self.attend(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    """From characters to scores for the next character, at every position."""

    def __init__(self, characters, context, width, heads, layers):
        super().__init__()
        self.context = context
        self.token, self.place = nn.Embedding(characters, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, characters, bias=False)
        self.head.weight = self.token.weight  # tied: the same table for input and output
        nn.init.normal_(self.token.weight, std=0.02)
        nn.init.normal_(self.place.weight, std=0.02)

    def forward(self, tokens):
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        return self.head(self.norm(self.blocks(self.token(tokens) + self.place(positions))))

    @torch.no_grad()
    def write(self, tokens, count, temperature=0.8):
        """Appends `count` characters to `tokens`, each sampled from the model's prediction."""
        for _ in range(count):
            scores = self(tokens[:, -self.context :])[:, -1] / temperature
            tokens = torch.cat([tokens, torch.multinomial(scores.softmax(dim=-1), 1)], dim=1)
        return tokens


def batch_of(text, size, length):
    """Random pieces of `text`, and the same pieces one character later, which are the targets."""
    starts = torch.randint(len(text) - length, (size, 1))
    pieces = text[starts.to(text.device) + torch.arange(length + 1, device=text.device)]
    return pieces[:, :-1], pieces[:, 1:]


def loss_of(model, batch):
    inputs, targets = batch
    return F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())


@torch.no_grad()
def held_out_loss(model, text, length, pieces=32):
    """The loss on evenly spaced pieces of a text that was not trained on."""
    starts = torch.linspace(0, len(text) - length - 2, pieces, device=text.device).long()[:, None]
    chosen = text[starts + torch.arange(length + 1, device=text.device)]
    return loss_of(model, (chosen[:, :-1], chosen[:, 1:])).item()


def train(model, optimizer, checkpoint, train_text, test_text, options):
    """Trains with AdamW; the learning rate rises for a tenth of the steps, then falls linearly."""
    every = max(1, options.steps // 10)
    for step in progress(options.steps, checkpoint.done):
        for group in optimizer.param_groups:
            group["lr"] = options.lr * min((step + 1) * 10 / options.steps, 1 - step / options.steps)
        loss = loss_of(model, batch_of(train_text, options.batch_size, options.context))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step < 3:
            say(f"step {step + 1}  loss {loss.item():.6f}")
        if (step + 1) % every == 0:
            test = held_out_loss(model, test_text, options.context)
            say(f"step {step + 1}  loss {loss.item():.4f}  held out {test:.4f}  {seconds(options)}")
            checkpoint.save(step + 1, train=loss.item(), test=test)


def main():
    parser = make_parser(
        __doc__, "gpt", steps=1000, batch_size=16, context=64, width=128, heads=4, layers=2, characters=500
    )
    parser.add_argument("--lr", type=float, default=3e-3, help="highest learning rate (%(default)s)")
    parser.add_argument("--prompt", default="ROMEO:", help="what the sample begins with (%(default)s)")
    options = start(torch, parser)

    text = load_text(options.data)
    alphabet = sorted(set(text))
    number = {character: i for i, character in enumerate(alphabet)}
    if not set(options.prompt) <= set(alphabet) or not options.prompt:
        raise ValueError(f"--prompt: expected characters that occur in the text, got {options.prompt!r}")
    tokens = torch.tensor([number[character] for character in text], device=options.device)
    split = len(tokens) * 9 // 10
    model = GPT(len(alphabet), options.context, options.width, options.heads, options.layers).to(options.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr, betas=(0.9, 0.99), weight_decay=0.1)
    checkpoint = Checkpoint(torch, options, model=model, optimizer=optimizer)
    print(f"{len(text):,} characters, {len(alphabet)} different")
    train(model, optimizer, checkpoint, tokens[:split], tokens[split:], options)

    prompt = torch.tensor([[number[character] for character in options.prompt]], device=options.device)
    sample = model.write(prompt, options.characters)[0].tolist()
    print("-" * 60 + "\n" + "".join(alphabet[token] for token in sample) + "\n" + "-" * 60)
    save_curves(torch, checkpoint.history, options.out / "gpt.svg", "Cross entropy per character")
    print(f"picture: {options.out / 'gpt.svg'}; weights: {checkpoint.file}; {seconds(options)} in all")


if __name__ == "__main__":
    run(main)
