"""Visualizations: the computation graph, a backward pass step by step, memory layout, training curves.

Everything is SVG or HTML, drawn in Python, and needs no server, no network and no other package. Modules are imported
on first use.

    loss.render(module=model).save("graph.svg")      # the computation graph, folded by module
    viz.explore(loss, "backprop.html")               # a page that steps through one backward pass
    viz.strides(x.t()[::2]).show()                   # which elements of its storage a view uses
    viz.curves({"loss": losses}).save("curves.svg")  # training curves

>>> x = torch.tensor([1.0, 2.0], requires_grad=True)
>>> (x * x).sum().render(names={"x": x}).graph.vertices[0].name
'x'
"""

import importlib as _importlib

from tensorgrad.system.lazy_modules import whole as _whole

_FILES = {  # name -> its file in this package (a file of the same name would hide the function once it is imported)
    "explore": "explorer",
    "render": "drawing",
    "collect": "graph",
    "record": "recording",
    "strides": "memory",
    "curves": "charts",
    "weights": "charts",
    "heatmap": "heat",
    "notebook": "heat",
    "Picture": "picture",
}


def __getattr__(name: str):
    if name in _FILES:
        return getattr(_importlib.import_module(f"tensorgrad.viz.{_FILES[name]}"), name)
    raise _importlib.import_module("tensorgrad.system.missing_names").no_attribute(__name__, name)


def __dir__():
    return sorted({*globals(), *_FILES})


_whole(__name__)
