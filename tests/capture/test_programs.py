"""Programs that train: recorded once and run again, each step gives the bits that the program itself gives."""

import pytest

import tensorgrad as torch
from tensorgrad import nn
from tensorgrad.capture import record
from tensorgrad.fx import Interpreter
from tests.capture.compare import bits

F = nn.functional


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1, self.ln_2, self.heads = nn.LayerNorm(width), nn.LayerNorm(width), heads
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (z.view(b, t, self.heads, -1).transpose(1, 2) for z in self.qkv(self.ln_1(x)).split(c, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, vocabulary=11, width=16, context=6):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(Block(width, 2), Block(width, 2))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, x):
        return self.head(self.norm(self.blocks(self.tokens(x) + self.places(torch.arange(x.shape[1]))))).flatten(0, 1)


class LSTM(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.out = nn.LSTM(5, 8, num_layers=2, dropout=0.2, batch_first=True), nn.Linear(8, 3)

    def forward(self, x):
        return self.out(self.rnn(x)[0][:, -1])


class ByHand(nn.Module):
    """A loop over time with a state that is made inside, and written in place."""

    def __init__(self):
        super().__init__()
        self.cell, self.out = nn.GRUCell(5, 4), nn.Linear(4, 3)

    def forward(self, x):
        h, seen = torch.zeros(x.shape[0], 4), torch.zeros(x.shape[0], 4)
        for t in range(x.shape[1]):
            h = self.cell(x[:, t], h)
            seen[:, :2] += h.detach()[:, :2]
        return self.out(h + seen)


def floats(*shape):
    return lambda: torch.randn(*shape)


def convolutions():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Dropout2d(0.2),
        nn.Conv2d(4, 6, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3),
    )  # fmt: skip


def perceptron():
    return nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Dropout(0.3), nn.BatchNorm1d(16), nn.Linear(16, 3))


PROGRAMS = {  # name -> the model, its inputs, its targets
    "MLP": (perceptron, floats(6, 5), lambda: torch.randint(3, (6,))),
    "ConvNet": (convolutions, floats(4, 1, 8, 8), lambda: torch.randint(3, (4,))),
    "GPT": (GPT, lambda: torch.randint(11, (2, 6)), lambda: torch.randint(11, (12,))),
    "LSTM": (LSTM, floats(3, 4, 5), lambda: torch.randint(3, (3,))),
    "GRU by hand": (ByHand, floats(3, 4, 5), lambda: torch.randint(3, (3,))),
}
OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01),
    None: None,
}


def trained(name, optimizer, run, steps=3):
    """The losses and the state after some steps, each by `run(step, x, y)`."""
    model, inputs, targets = PROGRAMS[name]
    torch.manual_seed(0)
    model = model()
    moves = OPTIMIZERS[optimizer]
    moves = moves and moves(model.parameters())

    def step(x, y):
        model.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        if moves:
            moves.step()
        return loss

    losses = [run(step, inputs(), targets()) for _ in range(steps)]
    return bits([losses, model.state_dict(), [p.grad for p in model.parameters()]])


class Recorded:
    """Records at the first call, and runs the graph at all others."""

    def __init__(self):
        self.recording = None

    def __call__(self, step, *args):
        if self.recording is None:
            self.recording = record(step, *args)
            return self.recording.result
        return self.recording(*args)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_training_steps(name, optimizer):
    if optimizer not in (None, "SGD") and name not in ("MLP", "GPT"):
        pytest.skip("each optimizer once with a small model and once with tied weights")
    assert trained(name, optimizer, Recorded()) == trained(name, optimizer, lambda step, *args: step(*args))


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_forward(name, training):
    model, inputs, _ = PROGRAMS[name]
    torch.manual_seed(0)
    model = model().train(training)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    x, other = inputs(), inputs()
    results = []
    for run in (model, record(model, x).graph_module, Interpreter(record(model, x).graph_module).run):
        model.load_state_dict(before)
        torch.manual_seed(1)
        results.append(bits([run(x), run(other), model.state_dict()]))
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_of_the_first_run_can_be_differentiated(name):
    """The program ran as ever: what it returned has its graph."""
    model, inputs, targets = PROGRAMS[name]
    torch.manual_seed(0)
    model, x, y = model(), inputs(), targets()
    grads = []
    for run in (lambda: model(x), lambda: record(model, x).result):
        model.zero_grad()
        model.load_state_dict(model.state_dict())
        torch.manual_seed(1)
        F.cross_entropy(run(), y).backward()
        grads.append(bits([p.grad for p in model.parameters()]))
    assert grads[0] == grads[1]
