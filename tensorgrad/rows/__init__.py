"""What an op is: its row, and the tables of kernels that a call looks in. Nothing here knows of tensors.

op.py               a row: signature, kernel, one derivative formula per input
signature.py        `"sum(input, dim: dims = None)"` as parameters
interface.py        a kernel that brings its own derivative
kernel_tables.py    the registry of kernels: from an op and the class of an array to the kernel
strides.py          where the elements of results lie
switches.py         what is switched on, and makes calls take the slow path
"""
