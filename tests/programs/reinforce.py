"""REINFORCE with a baseline on a corridor: walk to the right end, but the floor is slippery."""

import random
from collections import deque

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.distributions import Categorical


class Corridor:
    """Positions 0 to `length`; a step costs 0.1, the right end is worth 1, and one step in ten goes astray."""

    def __init__(self, length=6, limit=25):
        self.length, self.limit = length, limit

    def reset(self):
        self.at, self.time = self.length // 2, 0
        return self.observe()

    def observe(self):
        return torch.tensor([self.at / self.length, self.time / self.limit])

    def step(self, action):
        move = 1 if action == 1 else -1
        self.at = max(0, self.at + (move if random.random() > 0.1 else -move))
        self.time += 1
        done = self.at == self.length or self.time == self.limit
        return self.observe(), 1.0 if self.at == self.length else -0.1, done


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine1 = nn.Linear(2, 32)
        self.dropout = nn.Dropout(p=0.3)
        self.action_head = nn.Linear(32, 2)
        self.value_head = nn.Linear(32, 1)
        self.saved = []
        self.rewards = []

    def forward(self, x):
        x = F.relu(self.dropout(self.affine1(x)))
        return F.softmax(self.action_head(x), dim=-1), self.value_head(x)


def select_action(policy, state):
    probs, value = policy(state.unsqueeze(0))
    m = Categorical(probs)
    action = m.sample()
    policy.saved.append((m.log_prob(action), m.entropy(), value))
    return action.item()


def finish_episode(policy, optimizer, gamma=0.95, eps=1e-6):
    R = 0
    returns = deque()
    for r in policy.rewards[::-1]:
        R = r + gamma * R
        returns.appendleft(R)
    returns = torch.tensor(returns)
    if len(returns) > 1:
        returns = (returns - returns.mean()) / (returns.std() + eps)
    policy_loss, value_loss = [], []
    for (log_prob, entropy, value), R in zip(policy.saved, returns):
        advantage = R - value.item()
        policy_loss.append(-log_prob * advantage - 0.01 * entropy)
        value_loss.append(F.smooth_l1_loss(value.squeeze(), R))
    optimizer.zero_grad()
    loss = torch.cat(policy_loss).sum() + torch.stack(value_loss).sum()
    loss.backward()
    optimizer.step()
    del policy.rewards[:]
    del policy.saved[:]
    return loss.item()


def main(steps=20):
    random.seed(3)
    torch.manual_seed(3)
    env, policy = Corridor(), Policy()
    optimizer = optim.Adam(policy.parameters(), lr=1e-2)
    losses = []
    for _ in range(steps):
        state, done = env.reset(), False
        while not done:
            state, reward, done = env.step(select_action(policy, state))
            policy.rewards.append(reward)
        losses.append(finish_episode(policy, optimizer))
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(main()):
        print(f"step {step}: loss {loss:.4f}")
