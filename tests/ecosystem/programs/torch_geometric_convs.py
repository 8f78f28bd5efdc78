"""Graph networks of torch_geometric: GCN, GAT, GraphSAGE and GIN on one graph, and batches of graphs."""

import json
import os
import sys
import tempfile

import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv, global_max_pool, global_mean_pool
from torch_geometric.transforms import AddSelfLoops, NormalizeFeatures
from torch_geometric.utils import degree, softmax, to_undirected


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.gcn = GCNConv(5, 8)
        self.gat = GATConv(8, 4, heads=2, edge_dim=None)
        self.sage = SAGEConv(8, 8, aggr="max")
        self.gin = GINConv(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)), train_eps=True)
        self.norm = nn.BatchNorm1d(8)
        self.out = nn.Linear(8, 3)

    def forward(self, x, edge_index):
        x = self.gcn(x, edge_index).relu()
        x = nn.functional.elu(self.gat(x, edge_index))
        x = self.norm(self.sage(x, edge_index))
        return self.out(self.gin(x, edge_index))


torch.manual_seed(0)
edges = to_undirected(torch.randint(20, (2, 40)))
graph = NormalizeFeatures()(Data(x=torch.rand(20, 5), edge_index=edges, y=torch.randint(3, (20,))))
graph = AddSelfLoops()(graph)
model = Network()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
losses = []
for _ in range(3):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(graph.x, graph.edge_index), graph.y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

graphs = [
    Data(x=torch.randn(n, 5), edge_index=torch.randint(n, (2, 2 * n)), y=torch.tensor([n % 2])) for n in range(3, 9)
]
convolution, classifier = SAGEConv(5, 8), nn.Linear(16, 2)
optimizer = torch.optim.SGD([*convolution.parameters(), *classifier.parameters()], lr=0.1)
for batch in DataLoader(graphs, batch_size=2, shuffle=True):
    optimizer.zero_grad()
    hidden = convolution(batch.x, batch.edge_index).relu()
    pooled = torch.cat([global_mean_pool(hidden, batch.batch), global_max_pool(hidden, batch.batch)], dim=1)
    loss = nn.functional.cross_entropy(classifier(pooled), batch.y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
file = os.path.join(folder, "graph.pt")
model.eval()
if not os.path.exists(file):
    torch.save(model.state_dict(), file)
again = Network().eval()
again.load_state_dict(torch.load(file))
out = again(graph.x, graph.edge_index)
torch.testing.assert_close(out, model(graph.x, graph.edge_index))
weights = softmax(torch.arange(40.0) / 10, edges[0][:40], num_nodes=20)
numbers = {"out": out.detach()[:4].tolist(), "degrees": degree(edges[0], 20).tolist(), "softmax": weights.tolist()}
print(json.dumps({"losses": losses, "numbers": numbers}))
