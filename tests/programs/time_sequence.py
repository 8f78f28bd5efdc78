"""Two LSTM cells predict sine waves, in double precision, trained by L-BFGS with a closure."""

import torch
import torch.nn as nn
import torch.optim as optim


class Sequence(nn.Module):
    def __init__(self, hidden=12):
        super(Sequence, self).__init__()
        self.hidden = hidden
        self.lstm1 = nn.LSTMCell(1, hidden)
        self.lstm2 = nn.LSTMCell(hidden, hidden)
        self.linear = nn.Linear(hidden, 1)

    def forward(self, input, future=0):
        outputs = []
        n = input.size(0)
        h_t = torch.zeros(n, self.hidden, dtype=torch.double)
        c_t = torch.zeros(n, self.hidden, dtype=torch.double)
        h_t2, c_t2 = torch.zeros_like(h_t), torch.zeros_like(c_t)
        for input_t in input.split(1, dim=1):
            h_t, c_t = self.lstm1(input_t, (h_t, c_t))
            h_t2, c_t2 = self.lstm2(h_t, (h_t2, c_t2))
            output = self.linear(h_t2)
            outputs += [output]
        for _ in range(future):  # on what it predicted itself
            h_t, c_t = self.lstm1(output, (h_t, c_t))
            h_t2, c_t2 = self.lstm2(h_t, (h_t2, c_t2))
            output = self.linear(h_t2)
            outputs += [output]
        return torch.cat(outputs, dim=1)


def waves(n, length, period=7):
    shift = torch.randint(-4 * period, 4 * period, (n, 1))
    return torch.sin((torch.arange(length) + shift) / period).double()


def main(steps=20):
    torch.manual_seed(0)
    data = waves(8, 22)
    input, target = data[3:, :-1], data[3:, 1:]
    test_input, test_target = data[:3, :-1], data[:3, 1:]
    seq = Sequence()
    seq.double()
    criterion = nn.MSELoss()
    optimizer = optim.LBFGS(seq.parameters(), lr=0.3, max_iter=5, line_search_fn=None)
    losses = []

    def closure():
        optimizer.zero_grad()
        loss = criterion(seq(input), target)
        losses.append(loss.item())
        loss.backward()
        return loss

    while len(losses) < steps:
        optimizer.step(closure)
    del losses[steps:]
    with torch.no_grad():
        future = 5
        pred = seq(test_input, future=future)
        losses[-1] += criterion(pred[:, :-future], test_target).item()
        assert pred.detach().numpy().shape == (3, 21 + future)
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(main()):
        print(f"step {step}: loss {loss:.4f}")
