"""What else an op can mean: for a batch of samples (vmap), or along a direction (forward mode).

transform.py        what all of them are: a level on a stack, which is given the ops called on it

Batches:
batch.py            batched tensors, and the level on which they live
batch_rules.py      how an op runs on all samples at once
batch_values.py     for rules that rows state: values of all samples
batch_views.py      for rules that rows state: arguments of views
batch_gradients.py  backward passes of all samples at once
batch_map.py        runs a function over a batch

Tangents:
forward.py          the level on which tensors have tangents
tangents.py         the tangents of an op's results from those of its inputs
linearized.py       a function along many directions
"""
