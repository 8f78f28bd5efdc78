"""TorchRL: a replay buffer, deep Q-learning, and PPO with generalized advantages, on transitions made here."""

import json
import warnings

import torch

warnings.filterwarnings("ignore")
from tensordict import TensorDict  # noqa: E402
from tensordict.nn import TensorDictModule  # noqa: E402
from torchrl.data import Categorical, LazyTensorStorage, TensorDictReplayBuffer  # noqa: E402
from torchrl.modules import ProbabilisticActor, QValueActor, ValueOperator  # noqa: E402
from torchrl.objectives import ClipPPOLoss, DQNLoss, SoftUpdate  # noqa: E402
from torchrl.objectives.value import GAE  # noqa: E402

torch.manual_seed(0)
steps = 12
transitions = TensorDict(
    {
        "observation": torch.randn(steps, 3),
        "action": torch.arange(steps) % 2,
        "next": {
            "observation": torch.randn(steps, 3),
            "reward": torch.randn(steps, 1),
            "done": torch.arange(steps)[:, None] % 5 == 4,
            "terminated": torch.arange(steps)[:, None] % 5 == 4,
        },
    },
    batch_size=[steps],
)
buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(32), batch_size=steps)
buffer.extend(transitions)

actor = QValueActor(torch.nn.Linear(3, 2), in_keys=["observation"], spec=Categorical(2))
loss_of = DQNLoss(actor, action_space="categorical", delay_value=True)
loss_of.make_value_estimator(gamma=0.9)
update = SoftUpdate(loss_of, eps=0.9)
optimizer = torch.optim.SGD(loss_of.parameters(), lr=0.1)
losses = []
for _ in range(3):
    loss = loss_of(buffer[:].clone())["loss"]
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    update.step()
    losses.append(loss.item())

policy = ProbabilisticActor(
    TensorDictModule(torch.nn.Linear(3, 2), in_keys=["observation"], out_keys=["logits"]),
    in_keys=["logits"],
    distribution_class=torch.distributions.Categorical,
    return_log_prob=True,
)
critic = ValueOperator(torch.nn.Linear(3, 1), in_keys=["observation"])
advantages = GAE(gamma=0.9, lmbda=0.8, value_network=critic, shifted=True)
ppo = ClipPPOLoss(policy, critic)
with torch.no_grad():
    batch = transitions.clone()
    batch["action_log_prob"] = policy.get_dist(batch).log_prob(batch["action"])
    batch = advantages(batch)
optimizer = torch.optim.Adam(ppo.parameters(), lr=0.05)
for _ in range(3):
    found = ppo(batch.clone())
    loss = found["loss_objective"] + found["loss_critic"]
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
numbers = {
    "advantage": batch["advantage"].flatten().tolist(),
    "values": actor(transitions.clone())["action_value"].detach().tolist(),
    "sizes": [len(buffer), buffer.sample().numel()],
    "logits": policy[0](transitions.clone())["logits"].detach().tolist(),
}
print(json.dumps({"losses": losses, "numbers": numbers}))
