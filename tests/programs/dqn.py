"""Q-learning with a replay memory, a target network and an epsilon-greedy policy, on a small grid."""

import math
import random
from collections import deque, namedtuple

import torch
import torch.nn as nn
import torch.optim as optim

Transition = namedtuple("Transition", ("state", "action", "next_state", "reward"))
SIZE = 4


class ReplayMemory:
    def __init__(self, capacity):
        self.memory = deque([], maxlen=capacity)

    def push(self, *args):
        self.memory.append(Transition(*args))

    def sample(self, batch_size):
        return random.sample(self.memory, batch_size)

    def __len__(self):
        return len(self.memory)


class Grid:
    """From one corner to the other in at most 20 moves; the walls cost something."""

    moves = ((0, 1), (0, -1), (1, 0), (-1, 0))

    def reset(self):
        self.at, self.time = (0, 0), 0
        return self.state()

    def state(self):
        one_hot = torch.zeros(2, SIZE)
        one_hot[[0, 1], list(self.at)] = 1
        return one_hot.flatten().unsqueeze(0)

    def step(self, action):
        moved = tuple(a + d for a, d in zip(self.at, self.moves[action]))
        inside = all(0 <= a < SIZE for a in moved)
        self.at, self.time = moved if inside else self.at, self.time + 1
        arrived = self.at == (SIZE - 1, SIZE - 1)
        reward = 1.0 if arrived else -0.01 if inside else -0.2
        return self.state(), reward, arrived or self.time == 20


class DuelingDQN(nn.Module):
    def __init__(self, n_observations=2 * SIZE, n_actions=4):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(n_observations, 32), nn.ELU(), nn.Linear(32, 32), nn.ELU())
        self.advantage, self.value = nn.Linear(32, n_actions), nn.Linear(32, 1)

    def forward(self, x):
        h = self.body(x)
        advantage = self.advantage(h)
        return self.value(h) + advantage - advantage.mean(dim=-1, keepdim=True)


def select_action(net, state, step):
    epsilon = 0.1 + 0.8 * math.exp(-step / 100)
    if random.random() > epsilon:
        with torch.no_grad():
            return net(state).max(1).indices.view(1, 1)
    return torch.tensor([[random.randrange(4)]], dtype=torch.long)


def optimize(policy_net, target_net, memory, optimizer, batch_size=32, gamma=0.95):
    batch = Transition(*zip(*memory.sample(batch_size)))
    non_final = torch.tensor(tuple(s is not None for s in batch.next_state), dtype=torch.bool)
    next_states = torch.cat([s for s in batch.next_state if s is not None])
    q = policy_net(torch.cat(batch.state)).gather(1, torch.cat(batch.action))
    next_values = torch.zeros(batch_size)
    with torch.no_grad():  # double Q-learning: one network chooses, the other judges
        choice = policy_net(next_states).argmax(1, keepdim=True)
        next_values[non_final] = target_net(next_states).gather(1, choice).squeeze(1)
    expected = next_values * gamma + torch.cat(batch.reward)
    loss = nn.SmoothL1Loss()(q, expected.unsqueeze(1))
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_value_(policy_net.parameters(), 100)
    optimizer.step()
    return loss.item()


def main(steps=20, tau=0.05):
    random.seed(1)
    torch.manual_seed(1)
    policy_net, target_net = DuelingDQN(), DuelingDQN()
    target_net.load_state_dict(policy_net.state_dict())
    optimizer = optim.AdamW(policy_net.parameters(), lr=1e-3, amsgrad=True)
    memory, env = ReplayMemory(500), Grid()
    losses, state, played = [], env.reset(), 0
    while len(losses) < steps:
        action = select_action(policy_net, state, played)
        observation, reward, done = env.step(action.item())
        memory.push(state, action, None if done else observation, torch.tensor([reward]))
        state, played = env.reset() if done else observation, played + 1
        if len(memory) >= 64:
            losses.append(optimize(policy_net, target_net, memory, optimizer))
            target, policy = target_net.state_dict(), policy_net.state_dict()
            for key in policy:
                target[key] = policy[key] * tau + target[key] * (1 - tau)
            target_net.load_state_dict(target)
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(main()):
        print(f"step {step}: loss {loss:.4f}")
