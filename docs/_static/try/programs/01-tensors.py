# Tensors: the names and results are PyTorch's.
import tensorgrad as torch

x = torch.arange(6.0).reshape(2, 3)
print(x)
print("shape", x.shape, "dtype", x.dtype, "strides", x.stride())

print("a view shares its memory:")
x.t()[0, 1] = 10
print(x)

print("broadcasting:", x.mean(dim=1, keepdim=True).shape)
print(x - x.mean(dim=1, keepdim=True))
print("product:", x @ x.t(), sep="\n")
