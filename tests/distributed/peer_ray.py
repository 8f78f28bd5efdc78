"""A program for Ray Train with two workers. The losses of three epochs go to the file that is named."""

import json
import sys
import tempfile

import ray
import ray.train.torch
import torch
from ray.train import RunConfig, ScalingConfig
from torch.utils.data import DataLoader, TensorDataset


def train(settings):
    x = torch.linspace(-1, 1, 64).reshape(32, 2)
    model = torch.nn.Linear(2, 1)
    with torch.no_grad():
        model.weight.fill_(0.5)
        model.bias.zero_()
    model = ray.train.torch.prepare_model(model)
    data = DataLoader(TensorDataset(x, x.sum(1, keepdim=True) * 2 + 1), batch_size=4)
    data = ray.train.torch.prepare_data_loader(data)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(3):
        total = 0.0
        for inputs, targets in data:
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            loss.backward()
            optimizer.step()
            total += loss.item()
        losses.append(round(total, 4))
        ray.train.report({"loss": total})
    if torch.distributed.get_rank() == 1:
        with open(settings["file"], "w") as file:
            json.dump([torch.__package__, torch.distributed.get_world_size(), losses], file)


if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False)
    try:
        with tempfile.TemporaryDirectory() as folder:
            ray.train.torch.TorchTrainer(
                train,
                train_loop_config={"file": sys.argv[1]},
                scaling_config=ScalingConfig(num_workers=2),
                run_config=RunConfig(storage_path=folder),
            ).fit()
    finally:
        ray.shutdown()
