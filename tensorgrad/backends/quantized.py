"""`torch.backends.quantized`: whose integers the quantized modules compute.

>>> torch.backends.quantized.engine
'x86'
"""

supported_engines = ["qnnpack", "onednn", "x86", "fbgemm"]
engine = "x86"
