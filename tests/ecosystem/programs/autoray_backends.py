"""autoray: functions of NumPy's names on tensors, decompositions among them, and a regression in these words."""

import json

import autoray
import torch
from autoray import do
from shared.training import some, three_steps

torch.manual_seed(0)
x, y = torch.randn(8, 4), torch.randn(8, 1)
weight = torch.zeros(4, 1).requires_grad_()
losses = three_steps(torch.optim.SGD([weight], lr=0.1), lambda: do("mean", (do("matmul", x, weight) - y) ** 2))
square = do("matmul", do("transpose", x), x)
q, r = do("linalg.qr", x)
u, s, v = do("linalg.svd", x)
numbers = {
    "asked": [autoray.infer_backend(x), autoray.get_dtype_name(x), *autoray.shape(x), autoray.ndim(x), autoray.size(x)],
    "qr": some(q @ r), "svd": [*s.tolist(), *some(do("abs", u)), *some(do("abs", v))], "eigh": do("linalg.eigh", square)[0].tolist(),
    "norm": [do("linalg.norm", x).item(), *do("linalg.norm", x, axis=1).tolist()], "solve": some(do("linalg.solve", square, x[:4])),
    "expm": some(do("linalg.expm", square / 10)), "diag": some(do("diag", x[0])), "einsum": some(do("einsum", "ab,cb->ac", x, x)),
    "tensordot": some(do("tensordot", x, x, axes=((0,), (0,)))), "stack": some(do("stack", (x, x), axis=1)),
    "concatenate": some(do("concatenate", [x, x], axis=1)), "split": [len(do("split", x, 2)), *some(do("split", x, [1, 3])[1])],
    "pad": some(do("pad", x, ((1, 1), (0, 2)))), "sum": do("sum", x, axis=0).tolist(), "max": do("max", x, axis=0).tolist(),
    "cumsum": do("cumsum", x[0], axis=0).tolist(), "sort": do("sort", x[0]).tolist(), "argsort": do("argsort", x[0]).tolist(),
    "where": do("where", x[0] > 0, x[0], -x[0]).tolist(), "clip": do("clip", x[0], -0.5, 0.5).tolist(), "eye": some(do("eye", 3, like=x)),
    "take": some(do("take", x, torch.tensor([1, 0]), axis=1)), "flip": some(do("flip", x, axis=(0, 1))), "kron": some(do("kron", x[:2], x[:2])),
    "triu": some(do("triu", square)), "trace": [do("trace", square).item()], "count": [int(do("count_nonzero", x > 0))],
    "ravel": some(do("ravel", x)), "moved": some(do("moveaxis", x[None], 0, 1)), "astype": [str(autoray.astype(x, "float64").dtype)],
    "complex": some(autoray.real(autoray.dag(autoray.astype(x, "complex64")))), "numpy": autoray.to_numpy(x)[0].tolist(),
}  # fmt: skip


def network(a, b):
    return do("sum", do("tanh", a @ b) ** 2)


compiled = autoray.autojit(network)
numbers["compiled"] = [compiled(x, x.T).item(), network(x, x.T).item()]
lazy = autoray.lazy.array(x)
numbers["lazy"] = some(do("matmul", do("exp", lazy), do("transpose", lazy)).compute())
numbers["tree"] = autoray.tree_map(lambda t: t.sum().item(), {"a": [x, y]}, is_leaf=autoray.is_array)["a"]
print(json.dumps({"losses": losses, "numbers": numbers}))
