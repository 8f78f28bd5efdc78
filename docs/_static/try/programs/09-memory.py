# How a tensor lies in memory: its indices above, the cells of its storage below.
import tensorgrad as torch
from tensorgrad import viz

x = torch.arange(12.0).reshape(3, 4)
display(viz.strides(x.t()[::2], "x.t()[::2]"))
repeated = torch.tensor([1, 2, 3]).expand(4, 3)
display(viz.strides(repeated, "a dimension with stride 0 repeats cells"))
viz.heatmap(torch.sin(x))
