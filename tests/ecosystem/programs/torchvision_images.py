"""Torchvision's transforms (both generations), data sets and image files; three steps on what they return."""

import json
import os
import sys
import tempfile
import warnings

import torch
from torch import nn
from torchvision import io, tv_tensors
from torchvision import transforms as v1
from torchvision.datasets import FakeData, ImageFolder
from torchvision.transforms import v2
from torchvision.utils import draw_bounding_boxes, make_grid

warnings.simplefilter("ignore")
torch.manual_seed(0)
image = (torch.rand(3, 24, 32) * 255).byte()
numbers = {}
RANDOM = {
    "RandomResizedCrop": lambda t: t.RandomResizedCrop(16),
    "RandomResizedCrop antialias": lambda t: t.RandomResizedCrop(16, antialias=True),
    "RandomHorizontalFlip": lambda t: t.RandomHorizontalFlip(),
    "RandomRotation": lambda t: t.RandomRotation(30),
    "RandomAffine": lambda t: t.RandomAffine(20, (0.1, 0.1), (0.8, 1.2), 10),
    "RandomPerspective": lambda t: t.RandomPerspective(p=1.0),
    "ColorJitter": lambda t: t.ColorJitter(0.4, 0.4, 0.4, 0.1),
    "RandomErasing": lambda t: t.RandomErasing(p=1.0),
    "RandomCrop": lambda t: t.RandomCrop(20, padding=4),
    "GaussianBlur": lambda t: t.GaussianBlur(5),
    "RandomAdjustSharpness": lambda t: t.RandomAdjustSharpness(2, p=1.0),
    "RandomAutocontrast": lambda t: t.RandomAutocontrast(p=1.0),
    "RandomEqualize": lambda t: t.RandomEqualize(p=1.0),
    "RandomPosterize": lambda t: t.RandomPosterize(3, p=1.0),
    "RandomSolarize": lambda t: t.RandomSolarize(128, p=1.0),
    "ElasticTransform": lambda t: t.ElasticTransform(),
    "AutoAugment": lambda t: t.AutoAugment(),
    "RandAugment": lambda t: t.RandAugment(),
    "TrivialAugmentWide": lambda t: t.TrivialAugmentWide(),
    "AugMix": lambda t: t.AugMix(),
}
for name, make in RANDOM.items():
    for label, module in (("v1", v1), ("v2", v2)):
        torch.manual_seed(3)
        out = make(module)(image).float()
        numbers[f"{name} {label}"] = [list(out.shape), out.mean().item(), out.std().item()]
torch.manual_seed(4)
boxes = tv_tensors.BoundingBoxes([[2, 2, 20, 18]], format="XYXY", canvas_size=(24, 32))
mask = tv_tensors.Mask(torch.ones(1, 24, 32, dtype=torch.uint8))
both = v2.Compose(
    [v2.RandomHorizontalFlip(1.0), v2.RandomZoomOut(p=1.0), v2.Resize((16, 16)), v2.SanitizeBoundingBoxes()]
)
turned = both({"image": tv_tensors.Image(image), "boxes": boxes, "masks": mask, "labels": torch.tensor([1])})
numbers["together"] = [turned["boxes"].tolist(), turned["masks"].sum().item(), turned["image"].float().mean().item()]
numbers["mixup"] = v2.MixUp(num_classes=3)(torch.rand(4, 3, 4, 4), torch.arange(4) % 3)[1].tolist()
numbers["boxes drawn"] = draw_bounding_boxes(image, boxes).float().mean().item()
numbers["grid"] = list(make_grid([image, image, image]).shape)

folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
for label in ("a", "b"):
    os.makedirs(os.path.join(folder, "images", label), exist_ok=True)
    for i in range(3):
        picture = (torch.rand(3, 20, 20) * 255).byte()
        file = os.path.join(folder, "images", label, f"{i}.{'jpg' if i else 'png'}")
        if not os.path.exists(file):
            (io.write_jpeg if i else io.write_png)(picture, file)
        numbers[f"file {label}{i}"] = io.read_image(file).float().mean((1, 2)).tolist()
data = ImageFolder(
    os.path.join(folder, "images"), v1.Compose([v1.Resize(16), v1.ToTensor(), v1.Normalize([0.5] * 3, [0.2] * 3)])
)
numbers["fake"] = FakeData(1, (3, 8, 8), transform=v1.PILToTensor())[0][0].float().mean().item()
torch.manual_seed(5)
model = nn.Sequential(nn.Conv2d(3, 4, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(196, 2))
optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.05), []
for images, labels in torch.utils.data.DataLoader(data, 2, shuffle=True):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(json.dumps({"losses": losses, "numbers": numbers}))
