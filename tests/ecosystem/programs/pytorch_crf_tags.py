"""pytorch-crf: a recurrent tagger learns sequences of labels, is saved and loaded, and finds the best sequence."""

import json
import sys
import tempfile

import torch
from shared.training import saved_and_loaded, some, three_steps
from torch import nn
from torchcrf import CRF


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.read = nn.Embedding(20, 8), nn.LSTM(8, 6, bidirectional=True, batch_first=True)
        self.score, self.chain = nn.Linear(12, 4), CRF(4, batch_first=True)

    def forward(self, words):
        return self.score(self.read(self.words(words))[0])


torch.manual_seed(0)
words, tags = torch.randint(20, (5, 7)), torch.randint(4, (5, 7))
mask = torch.arange(7) < torch.tensor([7, 5, 3, 6, 1])[:, None]
model = Tagger()
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
losses = []
for reduction in ("sum", "mean", "token_mean"):
    losses += three_steps(
        optimizer, lambda reduction=reduction: -model.chain(model(words), tags, mask=mask, reduction=reduction)
    )
again = saved_and_loaded(model, Tagger(), sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
numbers = {
    "best": again.chain.decode(again(words), mask=mask), "each": again.chain(again(words), tags, reduction="none").tolist(),
    "transitions": some(again.chain.transitions),
}  # fmt: skip
print(json.dumps({"losses": losses, "numbers": numbers}))
