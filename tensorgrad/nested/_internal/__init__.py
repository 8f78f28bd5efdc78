"""How nested tensors work: the two classes, and what each op does with them.

    base.py           what both layouts share: a nested tensor is its values, and a way to read them
    nested_int.py     the size of a ragged dimension
    nested_tensor.py  the layout `torch.jagged`
    ops.py            which ops it has; attention is in sdpa.py
    strided.py        the layout `torch.strided`
    strided_ops.py    which ops it has

Files that PyTorch has, too, have its names: programs import from them.
"""
