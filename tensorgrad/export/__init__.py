"""`torch.export`: a module as a graph of operators that other programs read.

`export` runs a module and notes what it calls (tracer.py). See docs/export.md in the repository.
"""

from tensorgrad.export import decompositions as _decompositions
from tensorgrad.export import dynamic_shapes, exported_program, graph_signature
from tensorgrad.export.dynamic_shapes import Dim, ShapesCollection, dims
from tensorgrad.export.errors import UserError
from tensorgrad.export.exported_program import ExportedProgram, ModuleCallEntry, ModuleCallSignature
from tensorgrad.export.graph_signature import ExportGraphSignature
from tensorgrad.export.loading import load
from tensorgrad.export.saving import save
from tensorgrad.export.trace import draft_export, export
from tensorgrad.export.unflatten import FlatArgsAdapter, InterpreterModule, UnflattenedModule, unflatten
from tensorgrad.utils._pytree import register_dataclass

__all__ = [
    "Dim", "ExportGraphSignature", "ExportedProgram", "FlatArgsAdapter", "InterpreterModule", "ModuleCallEntry",
    "ModuleCallSignature", "ShapesCollection", "UnflattenedModule", "UserError", "dims", "draft_export",
    "dynamic_shapes", "export", "exported_program", "graph_signature", "load", "register_dataclass", "save",
    "unflatten",
]  # fmt: skip
