"""A graph convolutional network with a dense adjacency matrix, on a random graph of four communities."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parameter import Parameter


def community_graph(n, communities=4, p_in=0.3, p_out=0.02):
    """A symmetric adjacency matrix, noisy features and the nodes' communities."""
    labels = torch.arange(n) % communities
    same = labels.unsqueeze(0) == labels.unsqueeze(1)
    chance = torch.where(same, torch.tensor(p_in), torch.tensor(p_out))
    upper = torch.triu(torch.bernoulli(chance), diagonal=1)
    features = F.one_hot(labels, communities).float() + 1.5 * torch.randn(n, communities)
    return upper + upper.t(), torch.cat([features, torch.randn(n, 8)], dim=1), labels


def normalize(adj):
    """D^-1/2 (A + I) D^-1/2 (Kipf and Welling, 2017)."""
    adj = adj + torch.eye(adj.size(0))
    d_inv_sqrt = adj.sum(1).pow(-0.5)
    d_inv_sqrt[torch.isinf(d_inv_sqrt)] = 0.0
    d = torch.diag(d_inv_sqrt)
    return torch.mm(torch.mm(d, adj), d)


class GraphConvolution(nn.Module):
    def __init__(self, in_features, out_features, bias=True):
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = Parameter(torch.FloatTensor(in_features, out_features))
        if bias:
            self.bias = Parameter(torch.FloatTensor(out_features))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self):
        stdv = 1.0 / math.sqrt(self.weight.size(1))
        self.weight.data.uniform_(-stdv, stdv)
        if self.bias is not None:
            self.bias.data.uniform_(-stdv, stdv)

    def forward(self, input, adj):
        output = torch.mm(adj, torch.mm(input, self.weight))
        return output + self.bias if self.bias is not None else output

    def __repr__(self):
        return f"{self.__class__.__name__} ({self.in_features} -> {self.out_features})"


class GCN(nn.Module):
    def __init__(self, nfeat, nhid, nclass, dropout):
        super().__init__()
        self.gc1 = GraphConvolution(nfeat, nhid)
        self.gc2 = GraphConvolution(nhid, nclass)
        self.dropout = dropout

    def forward(self, x, adj):
        x = F.relu(self.gc1(x, adj))
        x = F.dropout(x, self.dropout, training=self.training)
        return F.log_softmax(self.gc2(x, adj), dim=1)


def accuracy(output, labels):
    preds = output.max(1)[1].type_as(labels)
    return preds.eq(labels).double().sum() / len(labels)


def main(steps=20):
    torch.manual_seed(42)
    adj, features, labels = community_graph(120)
    adj = normalize(adj)
    idx_train, idx_val = torch.LongTensor(range(40)), torch.LongTensor(range(40, 120))
    model = GCN(features.shape[1], 16, int(labels.max()) + 1, dropout=0.5)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    losses = []
    for _ in range(steps):
        model.train()
        optimizer.zero_grad()
        output = model(features, adj)
        loss_train = F.nll_loss(output[idx_train], labels[idx_train])
        loss_train.backward()
        optimizer.step()
        model.eval()
        output = model(features, adj)
        loss_val = F.nll_loss(output[idx_val], labels[idx_val])
        assert 0 <= accuracy(output[idx_val], labels[idx_val]).item() <= 1
        losses.append(loss_train.item() + loss_val.item())
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(main()):
        print(f"step {step}: loss {loss:.4f}")
