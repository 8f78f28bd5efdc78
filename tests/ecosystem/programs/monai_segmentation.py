"""MONAI: networks, losses, metrics, transforms with meta data, sliding windows; three steps of a small U-Net."""

import json
import os
import sys
import tempfile
import warnings

import numpy as np
import torch
from monai import losses as L
from monai import metrics as M
from monai import networks
from monai import transforms as T
from monai.data import CacheDataset, DataLoader, MetaTensor, decollate_batch
from monai.inferers import SlidingWindowInferer
from monai.utils import set_determinism

warnings.simplefilter("ignore")
set_determinism(0)
volume = np.random.RandomState(0).rand(1, 20, 20, 20).astype("float32")
label = (volume > 0.5).astype("float32")
keys = ["image", "label"]
pipeline = T.Compose([
    T.EnsureTyped(keys), T.ScaleIntensityd("image"), T.RandSpatialCropd(keys, (16, 16, 16), random_size=False),
    T.RandFlipd(keys, 0.5, 0), T.RandRotate90d(keys, 0.5), T.RandGaussianNoised("image", 1.0),
    T.RandAffined(keys, (16, 16, 16), 1.0, (0.2, 0.2, 0.2), mode=("bilinear", "nearest")), T.NormalizeIntensityd("image"),
]).set_random_state(0)  # fmt: skip
data = CacheDataset([{"image": volume, "label": label}] * 2, pipeline, progress=False, num_workers=0)
batch = next(iter(DataLoader(data, batch_size=2, num_workers=0)))
numbers = {"batch": [list(batch["image"].shape), batch["image"].mean().item(), batch["label"].mean().item()]}
numbers["meta"] = [isinstance(batch["image"], MetaTensor), len(decollate_batch(batch)), batch["image"].affine.shape[-1]]
set_determinism(1)
unet = networks.nets.UNet(3, 1, 2, channels=(4, 8, 16), strides=(2, 2), num_res_units=1, norm="instance", dropout=0.1)
optimizer, losses = torch.optim.Adam(unet.parameters(), 1e-2), []
criterion = L.DiceCELoss(to_onehot_y=True, softmax=True)
for _ in range(3):
    optimizer.zero_grad()
    loss = criterion(unet(batch["image"]), batch["label"])
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
file = os.path.join(folder, "unet.pt")
if not os.path.exists(file):
    torch.save(unet.state_dict(), file)
again = networks.nets.UNet(3, 1, 2, channels=(4, 8, 16), strides=(2, 2), num_res_units=1, norm="instance", dropout=0.1)
again.load_state_dict(torch.load(file))
x = torch.as_tensor(volume)[None]
with torch.no_grad():
    window = SlidingWindowInferer((16, 16, 16), 1, 0.25, mode="gaussian")
    out = window(x, unet.eval())
    torch.testing.assert_close(window(x, again.eval()), out, rtol=1e-3, atol=1e-3)
numbers["window"] = [out.mean().item(), out.std().item()]
guess = T.AsDiscrete(to_onehot=2)(torch.as_tensor(volume > 0.45).float())[None]
truth = T.AsDiscrete(to_onehot=2)(torch.as_tensor(label))[None]
for name in ("DiceMetric", "MeanIoU", "HausdorffDistanceMetric", "SurfaceDistanceMetric"):
    metric = getattr(M, name)(include_background=True, reduction="mean")
    metric(guess, truth)
    numbers[name] = metric.aggregate().flatten().tolist()
SMALL = {
    "BasicUNet": lambda: networks.nets.BasicUNet(2, 1, 2, features=(4, 4, 8, 8, 8, 4)),
    "DenseNet": lambda: networks.nets.DenseNet(2, 1, 2, 4, 4, (2, 2)),
    "SegResNet": lambda: networks.nets.SegResNet(2, 8, 1, 2, blocks_down=(1, 1), blocks_up=(1,)),
    "UNETR": lambda: networks.nets.UNETR(1, 2, (32, 32), 4, 16, 32, 2, spatial_dims=2),
    "VNet": lambda: networks.nets.VNet(2, 1, 2),
    "ViT": lambda: networks.nets.ViT(1, (32, 32), (8, 8), 16, 32, 2, 2, classification=True, spatial_dims=2),
    "AttentionUnet": lambda: networks.nets.AttentionUnet(2, 1, 2, (4, 8), (2,)),
}
for name, make in SMALL.items():
    torch.manual_seed(2)
    out = make()(torch.randn(2, 1, 32, 32))
    out = out[0] if isinstance(out, tuple | list) else out
    out.square().mean().backward()
    numbers[name] = [list(out.shape), out.mean().item(), out.std().item()]
torch.manual_seed(3)
scores, wanted = torch.randn(2, 3, 8, 8), torch.randint(0, 3, (2, 1, 8, 8))
for name in ("DiceLoss", "DiceFocalLoss", "GeneralizedDiceLoss", "TverskyLoss", "FocalLoss"):
    numbers[name] = getattr(L, name)(to_onehot_y=True)(scores, wanted).item()
print(json.dumps({"losses": losses, "numbers": numbers}))
