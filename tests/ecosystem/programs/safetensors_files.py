"""A model with shared weights, saved and loaded by safetensors in all of its ways."""

import json
import os
import sys
import tempfile

import torch
from safetensors import safe_open
from safetensors.torch import load, load_file, load_model, save, save_file, save_model
from torch import nn


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 6)
        self.mix = nn.Linear(6, 6)
        self.head = nn.Linear(6, 11, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def forward(self, tokens):
        self.seen += tokens.numel()
        return self.head(torch.tanh(self.mix(self.embedding(tokens))))


torch.manual_seed(0)
model, tokens = Tied(), torch.randint(11, (4, 8))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
losses = []
for _ in range(3):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.roll(1, 1).flatten())
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
file, second = os.path.join(folder, "model.safetensors"), os.path.join(folder, "more.safetensors")
more = {
    "half": torch.randn(3, 4).half(),
    "bfloat16": torch.randn(3, 4).bfloat16(),
    "bytes": torch.arange(6, dtype=torch.uint8).reshape(2, 3),
    "flags": torch.tensor([True, False]),
    "columns": torch.randn(4, 3).t().contiguous(),
    "nothing": torch.zeros(0, 3),
}
if not os.path.exists(file):
    save_model(model, file, metadata={"steps": "3"})
    save_file(more, second)

again = Tied()
assert load_model(again, file) == (set(), [])
assert again.seen == 96 and torch.equal(again.head.weight, model.embedding.weight)
torch.testing.assert_close(again(tokens), model(tokens))
for loaded in (load_file(second), load(save(more))):
    assert list(map(str, loaded)) and set(loaded) == set(more)
    for name, value in more.items():
        assert loaded[name].dtype == value.dtype and torch.equal(loaded[name], value), name
with safe_open(file, framework="pt") as opened:
    assert opened.metadata()["steps"] == "3"
    part = opened.get_slice("mix.weight")
    assert part.get_shape() == [6, 6]
    rows = part[1:3, ::1]
try:
    save_file({"a": model.head.weight, "b": model.embedding.weight}, os.path.join(folder, "shared.safetensors"))
    raise AssertionError("shared memory was not noticed")
except RuntimeError as error:
    assert "share memory" in str(error)
print(json.dumps({"losses": losses, "numbers": {"rows": rows.tolist()}}))
