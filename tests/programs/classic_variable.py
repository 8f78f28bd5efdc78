"""A program in the manner of PyTorch 0.3, as it still runs: Variable, FloatTensor, `.data`, updates by hand."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.autograd import Variable

use_cuda = torch.cuda.is_available()
FloatTensor = torch.cuda.FloatTensor if use_cuda else torch.FloatTensor
LongTensor = torch.cuda.LongTensor if use_cuda else torch.LongTensor


class Elman(nn.Module):
    """A recurrent network that reads one number at a time."""

    def __init__(self, input_size, hidden_size, output_size):
        super(Elman, self).__init__()
        self.hidden_size = hidden_size
        self.i2h = nn.Linear(input_size + hidden_size, hidden_size)
        self.i2o = nn.Linear(input_size + hidden_size, output_size)
        self.softmax = nn.LogSoftmax(dim=1)

    def forward(self, input, hidden):
        combined = torch.cat((input, hidden), 1)
        hidden = torch.tanh(self.i2h(combined))
        return self.softmax(self.i2o(combined)), hidden

    def initHidden(self, n):
        return Variable(torch.zeros(n, self.hidden_size))


class Scale(torch.autograd.Function):
    """x * factor, with a derivative of its own."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x.clone().mul_(factor)

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.factor, None


def get_batch(n, length=6):
    """Sequences that rise or fall on the whole, and which of the two."""
    x = FloatTensor(length, n, 1).normal_()
    drift = torch.rand(n).gt(0.5)
    slope = drift.float().mul(2).sub(1).mul(0.7)
    x += torch.arange(length).float().view(-1, 1, 1) * slope.view(1, -1, 1)
    return Variable(x), Variable(drift.type(LongTensor))


def train(rnn, category, lines, learning_rate):
    hidden = rnn.initHidden(lines.size()[1])
    rnn.zero_grad()
    for i in range(lines.size()[0]):
        output, hidden = rnn(Scale.apply(lines[i], 0.5), hidden)
    loss = F.nll_loss(output, category)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(rnn.parameters(), 2.0)
    for p in rnn.parameters():
        p.data.add_(p.grad.data, alpha=-learning_rate)
    return output, loss.data.item()


def main(steps=20):
    torch.manual_seed(6)
    rnn = Elman(1, 16, 2)
    if use_cuda:
        rnn.cuda()
    for p in rnn.parameters():
        if p.data.dim() > 1:
            p.data.copy_(FloatTensor(p.size()).uniform_(-0.3, 0.3))

    # a line fitted with tensors alone
    x = Variable(torch.linspace(-1, 1, 20).view(-1, 1))
    y = Variable(3 * x.data + 1 + 0.1 * torch.randn(x.size()))
    w, b = Variable(torch.randn(1, 1), requires_grad=True), Variable(FloatTensor([0]), requires_grad=True)

    losses = []
    for _ in range(steps):
        lines, category = get_batch(32)
        output, loss = train(rnn, category, lines, learning_rate=0.2)
        guess = output.data.max(1)[1]
        correct = guess.eq(category.data).cpu().sum()
        assert 0 <= int(correct) <= 32

        line_loss = (y - (x.mm(w) + b.expand_as(x))).pow(2).sum()
        if w.grad is not None:
            w.grad.data.zero_()
            b.grad.data.zero_()
        line_loss.backward()
        w.data -= 0.01 * w.grad.data
        b.data -= 0.01 * b.grad.data
        losses.append(loss + line_loss.data.cpu().numpy().item())
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(main()):
        print(f"step {step}: loss {loss:.4f}")
