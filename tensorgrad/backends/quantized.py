"""`torch.backends.quantized`: the engine of products of quantized tensors, of which there is none.

>>> torch.backends.quantized.supported_engines
['none']
"""

engine = "none"
supported_engines = ["none"]
