"""Attention with rotary embeddings of rotary-embedding-torch: plain, with scaled lengths, and for images."""

import json
import os
import sys
import tempfile

import torch
from rotary_embedding_torch import RotaryEmbedding, apply_rotary_emb
from torch import nn


class Attention(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.rotary = RotaryEmbedding(dim=4, **options)
        self.project, self.out = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x):
        q, k, v = self.project(x).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)
        if self.rotary.use_xpos:
            q, k = self.rotary.rotate_queries_and_keys(q, k)
        else:
            q, k = map(self.rotary.rotate_queries_or_keys, (q, k))
        return self.out(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2))


torch.manual_seed(0)
losses = []
for options in ({}, {"use_xpos": True}, {"learned_freq": True}, {"interpolate_factor": 2.0}):
    model, x = Attention(**options), torch.randn(2, 6, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(3):
        optimizer.zero_grad()
        loss = (model(x) - x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
file = os.path.join(folder, "rotary.pt")
if not os.path.exists(file):
    torch.save(model.state_dict(), file)
again = Attention(interpolate_factor=2.0)
again.load_state_dict(torch.load(file))
torch.testing.assert_close(again(x), model(x))
images = RotaryEmbedding(dim=4, freqs_for="pixel", max_freq=10)
turned = apply_rotary_emb(images.get_axial_freqs(3, 3), torch.randn(1, 3, 3, 8))
print(
    json.dumps(
        {"losses": losses, "numbers": {"out": again(x)[0, 0].tolist(), "images": turned[0, 0].flatten().tolist()}}
    )
)
