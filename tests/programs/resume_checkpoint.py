"""An autoencoder whose training is interrupted, saved to a file, and resumed from it with fresh objects."""

import os
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler


class ConvAutoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 4, 3, stride=2, padding=1), nn.BatchNorm2d(4), nn.LeakyReLU(0.1),
            nn.Conv2d(4, 8, 3, stride=2, padding=1), nn.Hardswish(), nn.Flatten(), nn.Linear(8 * 9, 10),
        )  # fmt: skip
        self.decoder = nn.Sequential(
            nn.Linear(10, 8 * 9), nn.Unflatten(1, (8, 3, 3)),
            nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False), nn.Conv2d(8, 4, 3, padding=1),
            nn.InstanceNorm2d(4, affine=True), nn.SiLU(), nn.Conv2d(4, 4, 3, padding=1), nn.PixelShuffle(2),
        )  # fmt: skip

    def forward(self, x):
        return self.decoder(self.encoder(x))


class Trainer:
    def __init__(self):
        self.model = ConvAutoencoder()
        self.optimizer = torch.optim.NAdam(self.model.parameters(), lr=4e-3)
        self.scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(self.optimizer, factor=0.5, patience=1)
        self.criterion = nn.HuberLoss(delta=0.5)
        self.epoch = 0
        self.history = []

    def run_epoch(self, loader, limit):
        for (x,) in loader:
            if len(self.history) == limit:
                break
            self.optimizer.zero_grad()
            loss = self.criterion(self.model(x), x)
            loss.backward()
            self.optimizer.step()
            self.history.append(loss.item())
        self.scheduler.step(self.history[-1])
        self.epoch += 1

    def save(self, path):
        torch.save(
            {
                "epoch": self.epoch,
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "scheduler": self.scheduler.state_dict(),
                "history": self.history,
                "rng": torch.get_rng_state(),
            },
            path,
        )

    def load(self, path):
        checkpoint = torch.load(path, map_location="cpu", weights_only=False)
        self.epoch, self.history = checkpoint["epoch"], checkpoint["history"]
        self.model.load_state_dict(checkpoint["model"])
        self.optimizer.load_state_dict(checkpoint["optimizer"])
        self.scheduler.load_state_dict(checkpoint["scheduler"])
        torch.set_rng_state(checkpoint["rng"])


def main(steps=20):
    torch.manual_seed(12)
    ramp = torch.linspace(-2, 2, 12)
    images = torch.cos(torch.randn(48, 1, 1, 1) * ramp.view(1, 1, 12, 1) + torch.randn(48, 1, 1, 1) * ramp)
    weights = images.flatten(1).std(dim=1)
    loader = DataLoader(TensorDataset(images), batch_size=16, sampler=WeightedRandomSampler(weights, 48))

    trainer = Trainer()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint.pt"
        while len(trainer.history) < steps:
            trainer.run_epoch(loader, steps)
            trainer.save(path)
            torch.randn(7)  # whatever happens in between is forgotten
            trainer = Trainer()
            trainer.load(path)
        assert os.path.getsize(path) > 0
    losses = trainer.history
    with torch.no_grad():
        losses[-1] += trainer.criterion(trainer.model.eval()(images), images).item()
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(main()):
        print(f"step {step}: loss {loss:.4f}")
