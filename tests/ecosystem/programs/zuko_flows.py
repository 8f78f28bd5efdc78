"""Conditional flows of zuko: NSF, MAF and a mixture."""

import json
import os
import sys
import tempfile

import torch
import zuko

torch.manual_seed(0)
x, c = torch.randn(32, 3).mul(0.5).add(0.3), torch.randn(32, 2)
makers = {
    "nsf": lambda: zuko.flows.NSF(3, 2, transforms=2, hidden_features=(16,)),
    "maf": lambda: zuko.flows.MAF(3, 2, transforms=2, hidden_features=(16,)),
    "nice": lambda: zuko.flows.NICE(3, 2, transforms=2, hidden_features=(16,)),
    "gmm": lambda: zuko.mixtures.GMM(3, 2, components=3),
}
losses, numbers = [], {}
folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
for name, make in makers.items():
    torch.manual_seed(1)
    flow = make()
    optimizer = torch.optim.Adam(flow.parameters(), lr=1e-2)
    for _ in range(3):
        optimizer.zero_grad()
        loss = -flow(c).log_prob(x).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    file = os.path.join(folder, f"{name}.pt")
    if not os.path.exists(file):
        torch.save(flow.state_dict(), file)
    again = make()
    again.load_state_dict(torch.load(file))
    numbers[name] = again(c[:4]).log_prob(x[:4]).tolist()
    numbers[f"{name} sample"] = flow(c[:1]).sample().flatten().tolist()
print(json.dumps({"losses": losses, "numbers": numbers}))
