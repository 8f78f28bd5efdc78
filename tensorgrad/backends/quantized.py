"""`torch.backends.quantized`: the engine of products of quantized tensors, of which there is none.

>>> import tensorgrad as torch
>>> torch.backends.quantized.supported_engines
['none']
"""

engine = "none"
supported_engines = ["none"]
