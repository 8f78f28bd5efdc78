"""Who may replace a call: modes, and classes with a `__torch_function__`. (For `__torch_dispatch__`: library/.)

torch_function.py     asks modes and classes about a call
function_modes.py     the `TorchFunctionMode`s that are on
function_classes.py   classes that define `__torch_function__`
caller_arguments.py   the arguments as the caller wrote them
"""
