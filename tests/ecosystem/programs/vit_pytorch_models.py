"""Vision transformers of vit-pytorch: seven architectures."""

import json
import os
import sys
import tempfile

import torch
from torch import nn
from vit_pytorch import SimpleViT, ViT
from vit_pytorch.cait import CaiT
from vit_pytorch.cct import CCT
from vit_pytorch.cvt import CvT
from vit_pytorch.deepvit import DeepViT
from vit_pytorch.max_vit import MaxViT

torch.manual_seed(0)
common = dict(image_size=32, patch_size=8, num_classes=5, dim=16, depth=1, heads=2, mlp_dim=32)
models = {
    "vit": lambda: ViT(**common, dropout=0.1, emb_dropout=0.1),
    "simple": lambda: SimpleViT(**common),
    "deep": lambda: DeepViT(**common),
    "cait": lambda: CaiT(**common, cls_depth=1),
    "cct": lambda: CCT(
        img_size=32, embedding_dim=16, n_conv_layers=1, num_layers=1, num_heads=2, mlp_ratio=2.0, num_classes=5
    ),
    "cvt": lambda: CvT(
        num_classes=5,
        s1_emb_dim=8,
        s1_heads=1,
        s1_mlp_mult=2,
        s2_emb_dim=8,
        s2_heads=1,
        s2_depth=1,
        s2_mlp_mult=2,
        s3_emb_dim=8,
        s3_heads=1,
        s3_depth=1,
        s3_mlp_mult=2,
    ),
    "maxvit": lambda: MaxViT(num_classes=5, dim=8, depth=(1, 1), dim_head=8, dim_conv_stem=8, window_size=4),
}
images, labels = torch.randn(8, 3, 32, 32), torch.arange(8) % 5
losses, numbers = [], {}
folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
for name, make in models.items():
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for _ in range(3):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    file = os.path.join(folder, f"{name}.pt")
    if not os.path.exists(file):
        torch.save(model.state_dict(), file)
    again = make().eval()
    again.load_state_dict(torch.load(file))
    torch.testing.assert_close(again(images), model(images), rtol=1e-4, atol=1e-5)
    numbers[name] = model(images)[0].tolist()
print(json.dumps({"losses": losses, "numbers": numbers}))
