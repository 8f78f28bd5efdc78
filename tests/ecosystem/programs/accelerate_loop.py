"""accelerate's loop: prepare, accumulate, clip, gather, checkpoints of the whole state, and loading large models."""

import json
import os
import sys
import tempfile

import torch
from accelerate import Accelerator, init_empty_weights, load_checkpoint_and_dispatch
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def network():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3))


set_seed(0)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
model = network()
data = TensorDataset(torch.randn(24, 8), torch.arange(24) % 3)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, eps=1e-4)
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=4)
loader = DataLoader(data, batch_size=4, shuffle=True)
model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
losses, rates = [], []
for inputs, labels in loader:
    with accelerator.accumulate(model):
        loss = nn.functional.cross_entropy(model(inputs), labels)
        accelerator.backward(loss)
        if accelerator.sync_gradients:
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        losses.append(accelerator.gather(loss.detach()).item())
        rates.append(scheduler.get_last_lr()[0])

folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
model.eval()
outputs = accelerator.gather_for_metrics(model(data.tensors[0][:4])).detach()
state = os.path.join(folder, "state")
if not os.path.exists(state):
    accelerator.save_state(state)
    accelerator.save_model(model, os.path.join(folder, "model"))
with torch.no_grad():
    for parameter in model.parameters():
        parameter.zero_()
accelerator.load_state(state)
torch.testing.assert_close(model(data.tensors[0][:4]), outputs, rtol=1e-4, atol=1e-5)

with init_empty_weights():
    empty = network()
assert all(parameter.device.type == "meta" for parameter in empty.parameters())
large = load_checkpoint_and_dispatch(empty, os.path.join(folder, "model"), device_map={"": "cpu"}).eval()
torch.testing.assert_close(large(data.tensors[0][:4]), outputs, rtol=1e-4, atol=1e-5)

numbers = {"rates": rates, "outputs": outputs.tolist()}
print(json.dumps({"losses": losses, "numbers": numbers}))
