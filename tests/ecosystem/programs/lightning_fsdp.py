"""Lightning with its parameters in parts on two processes: the Trainer, Fabric, and one file from both."""

import json
import os
import shutil
import tempfile
import warnings

import lightning as L
import torch
from lightning.pytorch.strategies import FSDPStrategy, ModelParallelStrategy
from torch import nn
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.utils.data import DataLoader, TensorDataset

warnings.simplefilter("ignore")


class OnProcessors(FSDPStrategy):
    """Lightning refuses its own class without a GPU; a class of one's own it takes."""


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.inner = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x):
        return x + torch.tanh(self.inner(self.norm(x)))


class Classifier(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.losses = []

    def configure_model(self):
        if hasattr(self, "net"):
            return
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(6, 16), Block(16), Block(16), nn.Linear(16, 3))
        if self.device_mesh is not None:
            for layer in (*self.net[1:3], self.net):
                fully_shard(layer, mesh=self.device_mesh["data_parallel"])
        else:  # Lightning's own call names no processor, and PyTorch then asks for a GPU
            self.net = FullyShardedDataParallel(
                self.net,
                auto_wrap_policy=ModuleWrapPolicy({Block}),
                device_id=torch.device("cpu"),
                use_orig_params=True,
            )

    def training_step(self, batch, index):
        inputs, labels = batch
        loss = nn.functional.cross_entropy(self.net(inputs), labels)
        self.log("train", loss, sync_dist=True)
        self.losses.append(self.all_gather(loss.detach()).tolist())
        return loss

    def validation_step(self, batch, index):
        self.log("val", nn.functional.cross_entropy(self.net(batch[0]), batch[1]), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), 0.01, eps=1e-4)


def loader():
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(24, 6, generator=generator)
    return DataLoader(TensorDataset(inputs, (inputs[:, :3]).argmax(1)), 4)


def trainer(way, **options):
    strategy = {
        "fsdp": lambda: OnProcessors(state_dict_type="full", process_group_backend="gloo"),
        "fsdp2": lambda: ModelParallelStrategy(2, 1, save_distributed_checkpoint=False, process_group_backend="gloo"),
    }[way]()
    return L.Trainer(
        accelerator="cpu", devices=2, strategy=strategy, logger=False, enable_progress_bar=False,
        enable_model_summary=False, enable_checkpointing=False, **options,
    )  # fmt: skip


os.environ.setdefault("LIGHTNING_EXAMPLE", tempfile.mkdtemp())  # the second process has it, too
folder, losses, numbers = os.environ["LIGHTNING_EXAMPLE"], [], {}
for way in ("fsdp", "fsdp2"):
    fit, model = trainer(way, max_epochs=1), Classifier()
    fit.fit(model, loader(), loader())
    parts = [type(m).__name__ for m in model.modules() if isinstance(m, (FullyShardedDataParallel, FSDPModule))]
    losses += [loss for both in model.losses for loss in both]
    numbers[way] = [parts, sorted([name, float(value)] for name, value in fit.callback_metrics.items())]
file = os.path.join(folder, "whole.ckpt")  # (of the older way: PyTorch's process dies of it without a GPU)
fit.save_checkpoint(file)
again, more = Classifier(), trainer("fsdp2", max_epochs=2)
more.fit(again, loader(), ckpt_path=file)
if fit.is_global_zero:
    weights = torch.load(file, weights_only=False)["state_dict"]
    numbers["weights"] = [[name, list(value.shape), value.norm().item()] for name, value in weights.items()]
    numbers["resumed"] = [more.global_step, again.losses]
    shutil.rmtree(folder)
    print(json.dumps({"losses": losses, "numbers": numbers}))
