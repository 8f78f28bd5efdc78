"""A program for accelerate, in one process or several. Prints the losses of three epochs."""

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator(cpu=True)
x = torch.linspace(-1, 1, 64).reshape(32, 2)
model = torch.nn.Linear(2, 1)
with torch.no_grad():
    model.weight.fill_(0.5)
    model.bias.zero_()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 4, 0.5)
data = DataLoader(TensorDataset(x, x.sum(1, keepdim=True) * 2 + 1), batch_size=4)
model, optimizer, data, schedule = accelerator.prepare(model, optimizer, data, schedule)
losses = []
for _ in range(3):
    total = 0.0
    for inputs, targets in data:
        with accelerator.accumulate(model):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        total += accelerator.gather(loss.detach().reshape(1)).mean().item()
    losses.append(round(total, 3))
gathered = accelerator.gather_for_metrics(model(x[:3]).detach())
accelerator.print("RESULT", torch.__package__, losses, list(gathered.shape), sorted(accelerator.get_state_dict(model)))
accelerator.wait_for_everyone()
accelerator.end_training()
