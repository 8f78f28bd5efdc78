"""What runs when an op is called. What an op is: `rows/`.

Declaring:
kinds.py            `pointwise`, `reduction`, `view`, `op`, `composite`: what rows of a kind share
no_derivative.py    formulas for what PyTorch does not differentiate

Calling:
templates.py        the text of each function that is generated for a row
codegen.py          from text to function, at the first call
generate.py         the functions of a row, and what their texts use
guard.py            the functions of composites: checked arguments, NumPy's names for them
legacy_calls.py     arguments in the order of old PyTorch programs
promotion.py        Python numbers, and dtypes that differ
twins.py            a twin as kernel, and derivatives through it
shapes.py           results without data (meta)
memory_formats.py   results in channels_last
kernel_errors.py    NumPy's complaints in PyTorch's words
inplace.py          `add_` from `add`

What is usually off:
slow_path.py        calls that something observes or changes: hooks, DEBUG, subclasses, autocast
autocast_ops.py     which ops autocast runs in which dtype
out.py              `out=`
resizing.py         memory that grows, with all tensors over it
out_dtype.py        in which dtypes `out=` stores

show.py             prints what a row became: `python -m tensorgrad.dispatch.show mul`
"""
