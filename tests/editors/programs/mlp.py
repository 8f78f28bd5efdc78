"""A multilayer perceptron, trained on a toy problem."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class MLP(nn.Module):
    def __init__(self, inputs: int, hidden: int, outputs: int) -> None:
        super().__init__()
        self.first = nn.Linear(inputs, hidden)
        self.drop = nn.Dropout(0.1)
        self.second = nn.Linear(hidden, outputs, bias=True, dtype=torch.float32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.first(x))
        out: torch.Tensor = self.second(self.drop(x))
        return out


def accuracy(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    model.eval()
    with torch.no_grad():
        values, guess = model(x).max(dim=1)
    model.train()
    return float((guess == y).float().mean())


def main() -> None:
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    x = torch.randn(64, 4, device=device)
    y = (x[:, 0] * x[:, 1] > 0).long()
    model = MLP(4, 16, 2).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
    for step in range(20):
        optimizer.zero_grad(set_to_none=True)
        loss = criterion(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step}: {loss.item():.3f}")
    print(accuracy(model, x, y), sum(p.numel() for p in model.parameters() if p.requires_grad))


if __name__ == "__main__":
    main()
