"""torchio: volumes are transformed, cut into patches, put together again, and train a small network."""

import json
import os
import sys
import tempfile

import numpy as np
import torch
import torchio as tio
from shared.training import some
from torch import nn

torch.manual_seed(0), np.random.seed(0)
folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
subjects = [
    tio.Subject(
        image=tio.ScalarImage(tensor=torch.rand(1, 16, 18, 14)), label=tio.LabelMap(tensor=(torch.rand(1, 16, 18, 14) > 0.5).int()),
        age=40 + i,
    )
    for i in range(4)
]  # fmt: skip
chosen = {
    "affine": tio.RandomAffine(scales=0.1, degrees=10), "elastic": tio.RandomElasticDeformation(max_displacement=2),
    "flip": tio.RandomFlip(axes=(0, 1)), "noise": tio.RandomNoise(), "blur": tio.RandomBlur(), "gamma": tio.RandomGamma(),
    "bias": tio.RandomBiasField(), "ghosting": tio.RandomGhosting(), "spike": tio.RandomSpike(),
    "motion": tio.RandomMotion(num_transforms=1), "swap": tio.RandomSwap(patch_size=4, num_iterations=3),
    "z": tio.ZNormalization(), "rescale": tio.RescaleIntensity((0, 1)), "resample": tio.Resample(2), "pad": tio.Pad(2),
    "crop": tio.CropOrPad(12), "hot": tio.OneHot(num_classes=2),
}  # fmt: skip
numbers = {}
for name, transform in chosen.items():
    torch.manual_seed(3), np.random.seed(3)
    out = transform(subjects[0])
    numbers[name] = [*out.image.shape, *some(out.image.data.double()), out.label.data.double().sum().item()]
path = os.path.join(folder, "volume.nii.gz")
if not os.path.exists(path):
    subjects[0].image.save(path)
numbers["file"] = some(tio.ScalarImage(path).data.float())

torch.manual_seed(1)
data = tio.SubjectsDataset(subjects, transform=tio.Compose([tio.ZNormalization(), tio.RandomFlip()]))
queue = tio.Queue(data, max_length=8, samples_per_volume=2, sampler=tio.UniformSampler(8), num_workers=0)
model = nn.Sequential(nn.Conv3d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv3d(4, 2, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
losses = []
for batch in tio.SubjectsLoader(queue, batch_size=2):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(batch["image"][tio.DATA]), batch["label"][tio.DATA][:, 0].long())
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
grid = tio.GridSampler(subjects[1], 8, 4)
together = tio.GridAggregator(grid, overlap_mode="average")
with torch.no_grad():
    for batch in tio.SubjectsLoader(grid, batch_size=4):
        together.add_batch(model(batch["image"][tio.DATA]), batch[tio.LOCATION])
numbers["whole"] = some(together.get_output_tensor())
print(json.dumps({"losses": losses, "numbers": numbers}))
