# Each line that says `wrong` has one mistake, which editors and type checkers are to find; no other line has one.
import torch
from torch import nn


class MLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8, biass=False)  # wrong
        self.second = nn.Linear(8)  # wrong

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sgmoid(x)  # wrong


with torch.nograd():  # wrong
    pass
