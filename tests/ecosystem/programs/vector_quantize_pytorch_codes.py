"""Quantised autoencoders of vector-quantize-pytorch: VQ, residual VQ, FSQ and LFQ."""

import json
import os
import sys
import tempfile

import torch
from torch import nn
from vector_quantize_pytorch import FSQ, LFQ, ResidualVQ, VectorQuantize

torch.manual_seed(0)
x = torch.randn(2, 10, 8)
losses, numbers = [], {}
makers = {
    "vq": lambda: VectorQuantize(dim=8, codebook_size=16, decay=0.8, commitment_weight=1.0),
    "cosine": lambda: VectorQuantize(dim=8, codebook_size=16, use_cosine_sim=True, kmeans_init=False),
    "residual": lambda: ResidualVQ(dim=8, codebook_size=16, num_quantizers=2),
    "fsq": lambda: FSQ(levels=[5, 5, 3], dim=8),
    "lfq": lambda: LFQ(codebook_size=16, dim=8, entropy_loss_weight=0.1),
}
folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
for name, make in makers.items():
    torch.manual_seed(2)
    encoder, quantize, decoder = nn.Linear(8, 8), make(), nn.Linear(8, 8)
    parameters = [*encoder.parameters(), *decoder.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        coded, indices, *extra = quantize(encoder(x))
        loss = nn.functional.mse_loss(decoder(coded), x) + sum(e.sum() for e in extra)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    numbers[name] = indices.flatten()[:8].tolist()
    file = os.path.join(folder, f"{name}.pt")
    if not os.path.exists(file):
        torch.save(quantize.state_dict(), file)
    again = make()
    again.load_state_dict(torch.load(file))
    quantize.eval(), again.eval()
    torch.testing.assert_close(again(encoder(x))[0], quantize(encoder(x))[0])
print(json.dumps({"losses": losses, "numbers": numbers}))
