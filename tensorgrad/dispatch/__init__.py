"""How an op is declared, and how a call finds its kernel.

op.py              a row: signature, kernel, one derivative formula per input
kinds.py           `pointwise`, `reduction`, `view`, `op`, `composite`: what rows of a kind share
generate.py        the function of each row, generated as text and compiled at its first call
kernel_tables.py   from an op and the class of an array to the kernel
promotion.py       numbers and dtypes that differ
slow_path.py       calls that something observes or changes: hooks, DEBUG, subclasses, autocast
inplace.py         `add_` from `add`
out.py             `out=`
shapes.py          results without data (meta)
kernel_errors.py   NumPy's complaints in PyTorch's words
guard.py           the functions as `torch.<name>`: checked arguments, NumPy's names for them
show.py            prints what a row became: `python -m tensorgrad.dispatch.show mul`
"""
