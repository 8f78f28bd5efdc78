"""tianshou: deep Q-learning and proximal policy optimization, three steps each, in a small world."""

import json
import os
import sys
import tempfile
import warnings

import gymnasium as gym
import numpy as np
import torch
from tianshou.algorithm.modelfree.dqn import DQN, DiscreteQLearningPolicy
from tianshou.algorithm.modelfree.ppo import PPO
from tianshou.algorithm.modelfree.reinforce import DiscreteActorPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.utils.net.common import Net
from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic
from tianshou.utils.torch_utils import policy_within_training_step

warnings.simplefilter("ignore")


class Walk(gym.Env):
    """A walk along a line of seven places, with a reward at its end."""

    observation_space, action_space = gym.spaces.Box(-1, 1, (3,)), gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.place, self.steps = 3, 0
        return self._seen(), {}

    def step(self, action):
        self.place, self.steps = self.place + 2 * int(action) - 1, self.steps + 1
        return self._seen(), float(self.place == 6), self.place in (0, 6), self.steps >= 12, {}

    def _seen(self):
        return np.array([self.place / 3 - 1, np.sin(self.place), self.steps / 12], np.float32)


def steps(algorithm, collector, update):
    found = []
    for _ in range(3):
        with policy_within_training_step(algorithm.policy):
            collector.collect(n_step=32)
            found.append(update().get_loss_stats_dict())
    return found


def deep_q(worlds):
    policy = DiscreteQLearningPolicy(
        model=Net(state_shape=3, action_shape=2, hidden_sizes=(16, 16)),
        action_space=Walk.action_space,
        eps_training=0.3,
    )
    options = dict(gamma=0.9, n_step_return_horizon=2, target_update_freq=2)
    algorithm = DQN(policy=policy, optim=AdamOptimizerFactory(lr=1e-2), **options)
    buffer = VectorReplayBuffer(200, 2)
    collector = Collector(algorithm, worlds, buffer)
    collector.reset()
    return algorithm, steps(algorithm, collector, lambda: algorithm.update(buffer, 16))


def proximal(worlds):
    body = Net(state_shape=3, hidden_sizes=(16,))
    policy = DiscreteActorPolicy(
        actor=DiscreteActor(preprocess_net=body, action_shape=2, softmax_output=False), action_space=Walk.action_space
    )
    algorithm = PPO(
        policy=policy, critic=DiscreteCritic(preprocess_net=body), optim=AdamOptimizerFactory(lr=1e-2),
        max_grad_norm=0.5, gae_lambda=0.9,
    )  # fmt: skip
    buffer = VectorReplayBuffer(200, 2)
    collector = Collector(algorithm, worlds, buffer)
    collector.reset()

    def update():
        told = algorithm.update(buffer, 16, 2)
        buffer.reset()
        return told

    return algorithm, steps(algorithm, collector, update)


folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
places = torch.tensor([[0.0, 0.1, 0.2], [0.7, -0.9, 0.5], [-1.0, 0.0, 1.0]])
losses, numbers = [], {}
for name, train in (("dqn", deep_q), ("ppo", proximal)):
    np.random.seed(0)
    torch.manual_seed(0)
    algorithm, found = train(DummyVectorEnv([Walk, Walk]))
    losses += [step.get("loss", step.get("loss/mean")) for step in found]
    file = os.path.join(folder, f"{name}.pt")
    if not os.path.exists(file):
        torch.save(algorithm.state_dict(), file)
    algorithm.load_state_dict(torch.load(file))
    net = algorithm.policy.model if name == "dqn" else algorithm.policy.actor
    numbers[name] = [[sorted(step.items()) for step in found], net(places)[0].tolist()]
print(json.dumps({"losses": losses, "numbers": numbers}))
