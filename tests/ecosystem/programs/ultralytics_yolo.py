"""ultralytics: networks that find, outline and classify what is in pictures; their losses, three steps, predictions."""

import json
import os
import sys
import tempfile
from types import SimpleNamespace

import torch
from shared.training import saved_and_loaded

os.environ["YOLO_CONFIG_DIR"] = tempfile.mkdtemp()
from ultralytics.nn import tasks

images = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(1))
boxes = torch.tensor([[0.3, 0.4, 0.3, 0.5], [0.6, 0.5, 0.4, 0.3], [0.5, 0.5, 0.8, 0.7]])
found = {
    "img": images, "cls": torch.tensor([[0.0], [2.0], [1.0]]), "bboxes": boxes, "batch_idx": torch.tensor([0.0, 0.0, 1.0]),
    "masks": (torch.arange(16 * 16).reshape(1, 16, 16) % 3).repeat(2, 1, 1).float(),
    "keypoints": torch.rand(3, 17, 3, generator=torch.Generator().manual_seed(2)),
}  # fmt: skip
GAINS = dict(
    box=7.5, cls=0.5, dfl=1.5, pose=12.0, kobj=1.0, overlap_mask=True, nbs=64, epochs=10, rle=1.0, cls_pw=0.0, angle=1.0
)
WAYS = {
    "yolo11": lambda: tasks.DetectionModel("yolo11n.yaml", nc=3, verbose=False),
    "yolov8": lambda: tasks.DetectionModel("yolov8n.yaml", nc=3, verbose=False),
    "outlines": lambda: tasks.SegmentationModel("yolo11n-seg.yaml", nc=3, verbose=False),
    "classes": lambda: tasks.ClassificationModel("yolo11n-cls.yaml", nc=3, verbose=False),
}
folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
losses, numbers = [], {}
for name, made in WAYS.items():
    torch.manual_seed(0)
    model = made().train()
    model.args = SimpleNamespace(**GAINS)
    batch = {**found, "cls": torch.tensor([0, 2])} if name == "classes" else found
    optimizer = torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9)
    for _ in range(3):
        optimizer.zero_grad()
        loss, parts = model(batch)
        loss.sum().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimizer.step()
        losses += [
            loss.sum().item(),
            *(float(p) for p in (parts.values() if isinstance(parts, dict) else parts.flatten())),
        ]
    again = saved_and_loaded(model, made(), folder, f"{name}.pt")
    with torch.no_grad():
        out = again(images)
    first = out[0] if isinstance(out, tuple | list) else out
    first = first[0] if isinstance(first, tuple | list) else first
    numbers[name] = [list(first.shape), first.flatten()[:6].tolist(), first.norm().item()]
print(json.dumps({"losses": losses, "numbers": numbers}))
