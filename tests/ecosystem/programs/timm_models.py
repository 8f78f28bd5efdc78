"""Thirty architectures of timm, small: three steps each, features of one, two saved and loaded."""

import json
import os
import sys
import tempfile

import timm
import torch
from timm.optim import create_optimizer_v2
from torch import nn

TOKENS = dict(img_size=32, patch_size=8, depth=2, embed_dim=32, num_heads=2)
STAGES = dict(depths=(1, 1, 1, 1), dims=(16, 16, 24, 24))
WINDOWS = dict(img_size=32, window_size=4, embed_dim=16, depths=(2, 2), num_heads=(2, 2))
MODELS = {
    "beit_base_patch16_224": TOKENS,
    "cait_xxs24_224": TOKENS,
    "convnext_atto": STAGES,
    "convnextv2_atto": STAGES,
    "deit_tiny_distilled_patch16_224": TOKENS,
    "densenet121": dict(block_config=(2, 2, 2, 2), growth_rate=8),
    "edgenext_xx_small": STAGES,
    "eva02_tiny_patch14_224": TOKENS,
    "fastvit_t8": {},
    "ghostnet_050": {},
    "lcnet_035": {},
    "levit_128s": dict(img_size=64, embed_dim=(16, 24, 32), depth=(1, 1, 1), num_heads=(2, 2, 2)),
    "mobilenetv3_small_050": {},
    "mobilevit_xxs": {},
    "pvt_v2_b0": {},
    "regnetx_002": {},
    "regnety_002": {},
    "resnet10t": {},
    "resnet18": {},
    "resnetv2_50": dict(layers=(1, 1, 1, 1)),
    "swin_tiny_patch4_window7_224": WINDOWS,
    "swinv2_tiny_window8_256": WINDOWS,
    "test_byobnet": {},
    "test_convnext": {},
    "test_efficientnet": {},
    "test_mambaout": {},
    "test_nfnet": {},
    "test_resnet": {},
    "test_vit": {},
    "vit_tiny_patch16_224": TOKENS,
    "xcit_nano_12_p16_224": dict(img_size=32, embed_dim=32, depth=2, num_heads=2),
}
# Normalized over a handful of values, which makes much of the last digit: in float64.
SENSITIVE = {"densenet121", "ghostnet_050", "lcnet_035", "mobilenetv3_small_050", "resnetv2_50", "test_efficientnet"}
SAVED = ("test_resnet", "test_vit")


def train(name, options):
    """Returns the model and its images after three steps, and the losses."""
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64 if name in SENSITIVE else torch.float32)
    model = timm.create_model(name, num_classes=4, **options)
    size = options.get("img_size", 32)
    images, labels = torch.randn(4, 3, size, size), torch.arange(4)
    optimizer = create_optimizer_v2(model, "sgd", lr=0.01, momentum=0.9, weight_decay=0.01)
    losses = []
    for _ in range(3):
        out = model(images)
        loss = nn.functional.cross_entropy(out[0] if isinstance(out, tuple) else out, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return model, images, losses


folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
losses, numbers = [], {}
for name, options in MODELS.items():
    model, images, numbers[name] = train(name, options)
    losses += numbers[name]
    if name in SAVED:
        file = os.path.join(folder, f"{name}.pt")
        if not os.path.exists(file):
            torch.save(model.state_dict(), file)
        again = timm.create_model(name, num_classes=4, checkpoint_path=file, **options).eval()
        with torch.no_grad():
            torch.testing.assert_close(again(images), model.eval()(images), rtol=1e-3, atol=1e-3)

torch.set_default_dtype(torch.float32)
torch.manual_seed(0)
backbone = timm.create_model("test_resnet", features_only=True).eval()
with torch.no_grad():
    maps = backbone(torch.randn(1, 3, 64, 64))
numbers["features"] = [[list(m.shape), m.mean().item(), m.std().item()] for m in maps]
print(json.dumps({"losses": losses, "numbers": numbers}))
