"""array_api_compat: the array standard on tensors, and a regression that is written with it."""

import json

import array_api_compat
import torch
from array_api_compat import array_namespace, device, is_torch_array, size, to_device
from shared.training import some, three_steps

torch.manual_seed(0)
x, y = torch.randn(8, 4), torch.randn(8, 1)
xp = array_namespace(x, y)
weight = torch.zeros(4, 1).requires_grad_()
losses = three_steps(torch.optim.SGD([weight], lr=0.1), lambda: xp.mean(xp.square(xp.matmul(x, weight) - y)))
integers = xp.asarray([[3, 1, 2, 3], [0, 1, 3, 5]])
values, inverse = xp.unique_inverse(integers)
_, counts = xp.unique_counts(integers)
symmetric = xp.matmul(x, x.mT)
mean = xp.mean(x, axis=(0, 1))
numbers = {
    "asked": [is_torch_array(x), array_api_compat.is_array_api_obj(x), size(x), str(device(x)), len(xp.__name__) > 5],
    "sums": [*xp.sum(x, axis=0).tolist(), *xp.prod(x, axis=1).tolist(), xp.sum(integers).item(), mean.item()],
    "spread": [*xp.std(x, axis=0, correction=1).tolist(), *xp.var(x, axis=1, keepdims=True).flatten().tolist()],
    "extremes": [*xp.max(x, axis=0).tolist(), *xp.min(x, axis=1).tolist(), xp.argmax(x).item(), xp.any(x > 2).item()],
    "sorted": [*xp.sort(x[0], descending=True).tolist(), *xp.argsort(x[0]).tolist(), *xp.searchsorted(xp.sort(x[0]), x[1]).tolist()],
    "unique": [*values.tolist(), *counts.tolist(), *inverse.flatten().tolist(), *xp.unique_values(integers).tolist()],
    "shapes": [*xp.permute_dims(x, (1, 0)).shape, *xp.expand_dims(x, axis=1).shape, *xp.squeeze(x[:1], axis=0).shape,
               *xp.concat([x, x], axis=1).shape, *xp.broadcast_to(x[0], (3, 4)).shape, *xp.reshape(x, (2, -1)).shape],
    "taken": [*xp.take(x, xp.asarray([2, 0]), axis=1)[0].tolist(), *xp.roll(x, 1, axis=0)[0].tolist(), *xp.flip(x, axis=1)[0].tolist()],
    "along": xp.take_along_axis(x, xp.argsort(x, axis=1), axis=1)[0].tolist(),
    "promoted": [str(xp.result_type(xp.int32, xp.float64)), str(xp.result_type(integers, 1.5)), xp.can_cast(xp.int8, xp.int16), str((integers * xp.asarray(2.0)).dtype)],
    "tensordot": [*some(xp.tensordot(x, y, axes=((0,), (0,)))), *some(xp.vecdot(x, x)), *some(xp.linalg.vector_norm(x, axis=1))],
    "linalg": [*xp.linalg.eigh(symmetric)[0].tolist(), xp.linalg.det(symmetric[:3, :3]).item(), xp.linalg.trace(symmetric).item(),
               *some(xp.linalg.solve(symmetric[:3, :3], y[:3])), *xp.linalg.svdvals(x).tolist(), *some(xp.linalg.outer(x[0], x[1]))],
    "fft": [*some(abs(xp.fft.fft(x[0]))), *some(xp.fft.irfft(xp.fft.rfft(x[0]), n=4)), *xp.fft.fftfreq(4).tolist()],
    "made": [*xp.arange(3).tolist(), *xp.linspace(0, 1, 3).tolist(), *xp.eye(2).flatten().tolist(), *xp.tril(xp.ones((2, 2))).flatten().tolist()],
    "clipped": [*xp.clip(x[0], -0.5, 0.5).tolist(), *xp.sign(x[0]).tolist(), *xp.where(x[0] > 0, x[0], -x[0]).tolist(), *xp.round(x[0]).tolist()],
    "other": [*xp.diff(x[0]).tolist(), xp.count_nonzero(integers).item(), *xp.repeat(xp.asarray([1, 2]), 2).tolist(),
              *xp.cumulative_sum(x[0]).tolist(), *to_device(x[0], "cpu").tolist(), *xp.isin(integers[0], integers[1]).tolist()],
    "kinds": [xp.isdtype(x.dtype, "real floating"), xp.isdtype(integers.dtype, ("bool", "integral")), xp.finfo(xp.float32).eps],
}  # fmt: skip
print(json.dumps({"losses": losses, "numbers": numbers}))
