"""Random programs under tensorgrad and PyTorch, compared after every step.

A program is a list of lines: views, in-place writes, arithmetic, `backward`, `no_grad`, `.data`, `set_`, `resize_`.
After each line all tensors are compared: values, gradients, shapes, dtypes, flags, and which of them share memory. Both
must raise the same errors, too. A program that shows a difference is made smaller by leaving out lines. It ends early
(`LAST`) where what follows is known to differ.

    python -m tests.fuzz stress --only programs --seed 7 --cases 1
"""

from __future__ import annotations

import importlib
import random
import re
import warnings
from collections import Counter
from typing import Any

import numpy as np

from tests.fuzz.beside_torch import Difference, Known, kind_of, meant, name_of, numbers, shown, values_differ

STEPS = 30
# After these a program ends, and its tensors are not compared.
LAST = (
    WRITTEN := "an error after which PyTorch's tensors are others",
    PARTIAL := "an error in backward: gradients of a part may be there",
)
LARGEST = 1e6  # programs end when a number is larger, as rounding then shows

KNOWN: tuple[Known, ...] = (
    Known(
        r"\.set_\(",
        "^(is_leaf|is_inference|requires_grad|retains_grad) of|^error: nothing.*(derivative for set_|setStorage"
        "|view of a leaf Variable|autograd::NotImplemented|Can't detach views|modified by an inplace)"
        "|^error: RuntimeError.*(modified by an inplace|invalid gradient"
        "|derivative for set_|on inference tensor outside InferenceMode)",
        "set_ gives a tensor that was computed the memory of another: PyTorch keeps the history of numbers that "
        "are gone, here it is forgotten",
    ),
    Known(
        r"\.set_\(",
        "^gradient of",
        "here tensors that share memory by set_ share its version counter, too, so that writes through one of them "
        "are detected: the history of a view among them is computed again, and what retains its gradient is with that",
    ),
    Known(
        r"no_grad\(\): (t\d+)\.set_\(",
        "^error: nothing.*size of tensor",
        "a gradient has the shape that the leaf had when it was used; PyTorch copies some to its present one",
    ),
    Known(
        r"\.data = ",
        "^error.*(invalid gradient|expected shape|size of tensor|broadcast shape|modified by an inplace|second time"
        "|not have been used|must be a matrix|Can't detach views|view of a leaf Variable)|^requires_grad of"
        "|^is_leaf of (.*RuntimeError|\\w+: True, in PyTorch False)|^(values|form) of \\w+\\.grad|^(shape of|names)",
        "a tensor that got another form or memory by .data after it was used, or was seen, and its views: PyTorch "
        "still asks a former base; each library notices at another moment",
    ),
    Known(
        r"\.data = [\s\S]*(backward\(inputs|autograd\.grad\()",
        "^gradient of .*in PyTorch None",
        "to a leaf that got another dtype by .data no gradient comes in PyTorch of what was computed from it before",
    ),
    Known(
        r"\.data\b",
        "^is_inference of",
        "the tensor is what its new memory is in PyTorch; here it stays what it was, as its version counter does there",
    ),
    Known(
        r"autograd\.grad\(\w+\.sum\(\)|\.grad\b|func\.grad\(",
        "^error: nothing.*(more than one element of the written-to tensor|A view was created|Can't detach views"
        "|setStorage|doesn't match the broadcast shape)|^error: .*view size is not compatible",
        "PyTorch's gradient of a sum is expanded, a view with one element for all; here it is a tensor of its own",
    ),
    Known(r"autograd\.grad\(\w+\.sum\(\)", "^(values of|sharing|requires_grad of)", "the same, where it is written to"),
    Known(r"func\.grad\(.*\.sum\(\)", "^(values of|sharing)", "the same in a transform, where it is copied or not"),
    Known(
        r"func\.vmap\(", "^error: nothing.*select\\(\\): index 0 out of range", "PyTorch fails in a batch of no samples"
    ),
    Known(
        "backward",
        r"^sharing: (.*), in PyTorch (?=.*\['t\d+\.grad'(, 't\d+\.grad')+\])",
        "PyTorch makes gradients of several leaves views of one tensor; here each has its own memory",
    ),
    Known(
        r"\.(index|masked)_fill_\(|\[t\d+ > 0\] = ",
        "^error.*more than one element of the written-to tensor.* in PyTorch nothing",
        "PyTorch accepts this on expanded tensors that require grad, and calls it deprecated",
    ),
    Known(
        r"index_fill_\(",
        "^error: IndexError.* in PyTorch RuntimeError: setStorage",
        "there is no element to fill: PyTorch fails at another place",
    ),
    Known(
        r"square\(\)\.sum\(\)[^\n]*create_graph=True",
        "^error: nothing.*modified by an inplace operation",
        "PyTorch saves the squared numbers for the gradient of a gradient, which does not need them",
    ),
    Known(
        r"\.(detach_\(\)|requires_grad_\(False\))",
        "^retains_grad of|^error: nothing.*leaf variable has been moved into the graph interior",
        "PyTorch lets a tensor that is detached retain a gradient that never comes, and notices later that a leaf "
        "of an older graph is none any more",
    ),
    Known(
        r"inference_mode\(\)[^\n]*requires_grad_\(\)",
        "^error|^(requires_grad|is_leaf) of",
        "a tensor that was made in inference mode and requires grad: PyTorch never records what is done with it",
    ),
    Known(
        r"\b(t\d+) = t\d+[.[][\s\S]*\b\1\.resize_(as_)?\(",
        r"^values of \w+\.grad",
        "a view that was resized: PyTorch takes the gradient of its former elements",
    ),
    Known(
        r"(no_grad|inference_mode)\(\): t\d+ = ",
        "^error: RuntimeError: Trying to backward through the graph a second time.* in PyTorch nothing",
        "what was saved for views that lead nowhere: PyTorch does not look at it, here it is found to be freed",
    ),
    Known(
        r"inference_mode\(\)[\s\S]*\.(data|detach\(\))",
        "^error: nothing.*Inplace update to inference tensor",
        "what shares the memory of an inference tensor by .data may be written to as a whole in PyTorch, but not by "
        "its views; here both may",
    ),
    Known(
        r"no_grad\(\): (t\d+) = t\d+[.[][\s\S]*\b\1\.requires_grad(_\(\)| = True)",
        "^is_leaf of .*RuntimeError|^error: nothing.*(A view was created in no_grad mode)",
        "a view made under no_grad that was made a leaf of its own: PyTorch refuses it once its base was written to",
    ),
    Known(
        r"\b(t\d+) = t\d+[.[][\s\S]*\b\1\.requires_grad(_\(\)| = True)",
        "^is_leaf of",
        "a view that was made a leaf of its own: in PyTorch it is computed again once its base was",
    ),
    Known(
        r"no_grad\(\): (t\d+)\.(squeeze|unsqueeze|transpose|t)_\(",
        "^error: nothing.*returned an invalid gradient",
        "a leaf whose shape was changed under no_grad: PyTorch expects gradients of either shape",
    ),
    Known(
        r"torch\.func\.jvp\(",
        "^(requires_grad|is_leaf|gradient) of|^error: RuntimeError: element 0 of tensors does not require grad",
        "a tangent that depends on no tensor requires no grad here; in PyTorch its gradient may be zero",
    ),
    Known(
        r"(no_grad|inference_mode)\(\):[^\n]*torch\.func\.",
        "^(is_inference|requires_grad|is_leaf) of",
        "a transform switches gradients on for itself: PyTorch's result may be the cotangent, and no inference tensor",
    ),
    Known(r"", "INTERNAL ASSERT FAILED", "PyTorch asks to report this as its own error"),
    Known(
        r"dtype=torch.int64",
        "^requires_grad of .*: False, in PyTorch True",
        "PyTorch lets integers require grad into which a tensor that does was written by an index that is a view",
    ),
    Known(
        r"(t\d+) = t\d+\.[\s\S]*, out=\1\)",
        "^error: RuntimeError: Function \\w+ returned an invalid gradient.* in PyTorch nothing",
        "a view that an output resized keeps the history of its former elements",
    ),
    Known(
        r", out=t\d+\)\Z",
        "^error: RuntimeError: unsupported operation: some elements of the input.* in PyTorch nothing",
        "PyTorch gives the output other memory first where it must grow; here it is refused",
    ),
)


# --- writing ---------------------------------------------------------------------------------------------------------


class Writer:
    """Writes lines that suit the tensors which exist so far, as PyTorch has them."""

    def __init__(self, seed: int, existing: dict[str, Any]) -> None:
        self.random, self.existing, self.count = random.Random(seed), existing, 0

    def one(self, *choices: Any) -> Any:
        return self.random.choice(choices)

    def names(self, suits=lambda t: True) -> list[str]:
        return [name for name, t in self.existing.items() if name[:1] == "t" and name != "torch" and suits(t)]

    def name(self, suits=lambda t: True) -> str:
        found = self.names(suits)
        return self.random.choice(found) if found else self.random.choice(self.names())

    def floating(self) -> str:
        return self.name(lambda t: t.dtype.is_floating_point)

    def fresh(self) -> str:
        """Returns a new name, or an old one to be bound again."""
        if len(self.names()) >= 7:
            return self.name()
        self.count += 1
        return f"t{self.count}"

    def shape(self) -> tuple[int, ...]:
        return tuple(self.one(1, 2, 2, 3, 4) for _ in range(self.one(0, 1, 2, 2, 2, 3)))

    def line(self) -> str:
        if len(self.names()) < 2:
            return self.create()
        kind = self.random.choices(
            (self.create, self.view, self.write, self.compute, self.backward, self.state, self.inside),
            (2, 6, 7, 5, 3, 4, 2),
        )[0]
        return kind()

    def create(self) -> str:
        shape = self.shape()
        size = 1
        for n in shape:
            size *= n
        dtype = self.one("float32", "float32", "float32", "float64", "int64")
        start = self.one(-3, 1, 1)
        made = f"torch.arange({start}, {start + size}, dtype=torch.{dtype}).reshape({shape})"
        if dtype.startswith("f"):
            made = f"({made} / {self.one(2, 4, 8)})" + self.one("", ".requires_grad_()", ".requires_grad_()")
        return f"{self.fresh()} = {made}"

    def index(self, t: Any) -> str:
        if not t.dim():
            return self.one("()", "...", "None")
        n = t.shape[0]
        first = self.one(
            str(self.random.randrange(max(n, 1))), "-1", ":", "1:", "::2", ":1", "None", "...",
            f"slice({self.random.randrange(n + 1)}, None)",
        )  # fmt: skip
        if t.dim() > 1 and first not in ("...", "None") and self.random.random() < 0.5:
            return f"{first}, {self.one(':', '0', '-1', '::2', ':1', '1:')}"
        return first

    def viewed(self, name: str) -> str:
        t = self.existing[name]
        dims, d = t.dim(), self.random.randrange(max(t.dim(), 1))
        size = t.numel()
        ways = [
            f"{name}[{self.index(t)}]", f"{name}[{self.index(t)}]", f"{name}.view(-1)", f"{name}.reshape(-1)",
            f"{name}.unsqueeze({self.one(0, -1)})", f"{name}.squeeze()", f"{name}.detach()", f"{name}.view_as({name})",
            f"{name}.flatten()", f"{name}.expand(2, *{name}.shape)", f"{name}.as_strided(({min(size, 2)},), (1,))",
            f"{name}.alias() if False else {name}.view({name}.shape)", f"{name}.contiguous()",
        ]  # fmt: skip
        if dims:
            ways += [
                f"{name}.select({d}, 0)", f"{name}.narrow({d}, 0, 1)", f"{name}.split(1, {d})[0]",
                f"{name}.unbind({d})[-1]", f"{name}.movedim({d}, -1)", f"{name}.chunk(2, {d})[-1]",
                f"{name}.unfold({d}, 1, 1)",
            ]  # fmt: skip
        if dims == 2:
            ways += [f"{name}.t()", f"{name}.diagonal()", f"{name}.T", f"{name}.view({t.shape[1]}, {t.shape[0]})"]
        if dims >= 2:
            ways += [f"{name}.transpose(0, -1)", f"{name}.mT", f"{name}.permute({tuple(reversed(range(dims)))})"]
        return self.random.choice(ways)

    def view(self) -> str:
        return f"{self.fresh()} = {self.viewed(self.name())}"

    def write(self) -> str:
        x = self.name()
        t = self.existing[x]
        y = self.name(lambda o: o.shape == t.shape) if self.random.random() < 0.7 else self.name()
        number = self.one("2", "0.5", "-1", "3")
        target = x if self.random.random() < 0.6 else self.viewed(x)
        d = self.random.randrange(max(t.dim(), 1))
        ways = [
            f"{target}.add_({number})", f"{target}.mul_({number})", f"{target}.neg_()", f"{target}.zero_()",
            f"{target}.fill_({number})", f"{target}.copy_({y})", f"{target}.sub_({y})", f"{target}.add_({y}, alpha=2)",
            f"{target}.mul_({y})", f"{target}.abs_()", f"{target}.clamp_(-1, 1)", f"{target}.sin_()",
            f"{target}.masked_fill_({target} > 0, {number})", f"{target}.square_()", f"{target}.relu_()",
            f"{x}[{self.index(t)}] = {number}", f"{x}[{self.index(t)}] = {y}", f"{x}[{x} > 0] = {number}",
            f"{x} += {y}", f"{x} *= {number}", f"{x}[{self.index(t)}] += {number}", f"{target}.lerp_({y}, 0.5)",
            f"torch.add({x}, {y}, out={self.name()})", f"torch.mul({x}, 2, out={x})", f"{target}.sigmoid_()",
            f"{target}.addcmul_({x}, {y})", f"{target}.cumsum_(0)", f"{target}.pow_(2)", f"{target}.div_(2)",
        ]  # fmt: skip
        if t.dim():
            ways += [
                f"{target}.index_fill_(0, torch.tensor([0]), {number})",
                f"{x}.index_add_({d}, torch.tensor([0]), {x}.narrow({d}, 0, 1))",
                f"{x}.scatter_({d}, torch.zeros({x}.shape, dtype=torch.int64), 5)",
            ]  # fmt: skip
        if t.dim() >= 2:
            ways += [f"{x}.transpose_(0, 1)", f"{x}.squeeze_()", f"{x}.unsqueeze_(0)"]
        return self.random.choice(ways)

    def compute(self) -> str:
        x = self.name()
        t = self.existing[x]
        y = self.name(lambda o: o.shape == t.shape) if self.random.random() < 0.7 else self.name()
        ways = [
            f"{x} + {y}", f"{x} * {y}", f"{x} - {y}", f"{x} * 2", f"{x}.sum()", f"{x}.sin()", f"{x}.clone()",
            f"torch.relu({x})", f"{x}.square()", f"torch.where({x} > 0, {x}, {y})",
            f"torch.cat([{x}.flatten(), {y}.flatten()])",
            f"{x} / 2", f"{x}.to(torch.float64)", f"{x}.float()", f"-{x}", f"torch.maximum({x}, {y})", f"{x}.tanh()",
            f"{x}.clamp(-1, 1)", f"torch.stack([{x}, {x}])", f"{x}.masked_fill({x} > 1, 0)",
        ]  # fmt: skip
        if t.dim():
            ways += [
                f"{x}.sum(0)", f"{x}.cumsum(0)", f"{x}.amax(0)",
                f"{x}.mean(-1) if {x}.is_floating_point() else {x}.sum(-1)",
                f"{x}.flip(0)", f"{x}.index_select(0, torch.tensor([0, 0]))", f"{x}[torch.tensor([0])]",
                f"{x}.sort(0)[0]",
            ]  # fmt: skip
        if t.dim() == 2:
            ways += [f"{x} @ {x}.t()", f"{x}.t() @ {x}"]
        if self.random.random() < 0.2:
            ways = self.functions(x, t)
        return f"{self.fresh()} = {self.random.choice(ways)}"

    def functions(self, x: str, t: Any) -> list[str]:
        """Functions that are transformed, run again in backward, or have a derivative of the program's."""
        if not t.dtype.is_floating_point:
            return [f"torch.func.vmap(torch.neg)({x})"] if t.dim() else [f"-{x}"]
        part = "z[:1]" if t.dim() else "z"
        function = self.one(
            "lambda z: z * z.sin()", f"lambda z: (z * 2).add_({part})", "lambda z: z.clone().mul_(z)",
            f"lambda z: z.detach() * {part}", f"lambda z: z + {x}",
        )  # fmt: skip
        ways = [
            f"torch.utils.checkpoint.checkpoint({function}, {x}, use_reentrant={self.one(True, False)})",
            f"torch.func.grad(lambda y: ({function})(y).sum())({x})",
            f"torch.func.jvp({function}, ({x},), ({x}.detach(),))[1]", f"torch.func.vjp({function}, {x})[1]({x})[0]",
            f"type('Double', (torch.autograd.Function,), dict(forward=staticmethod(lambda ctx, z: z * 2), "
            f"backward=staticmethod(lambda ctx, g: g * 3))).apply({x})",
            f"type('View', (torch.autograd.Function,), dict(forward=staticmethod(lambda ctx, z: {part}), "
            f"backward=staticmethod(lambda ctx, g: g.sum().expand({tuple(t.shape)})))).apply({x})",
        ]  # fmt: skip
        if t.dim():
            ways += [f"torch.func.vmap({function})({x})" for function in ("torch.sin", "lambda z: z.mul(2).add_(z)")]
            ways.append(f"torch.func.vmap(torch.func.grad(lambda y: (y * y).sum()))({x})")
        return ways

    def backward(self) -> str:
        x = self.name(lambda t: t.requires_grad and flag(t, "is_leaf") is False)
        y = self.name(lambda t: t.requires_grad)
        return self.one(
            f"{x}.sum().backward()", f"{x}.square().sum().backward()", f"{x}.sum().backward(retain_graph=True)",
            f"({x} * {x}.detach()).sum().backward(retain_graph=True)", f"{x}.backward(torch.ones_like({x}))",
            f"{self.fresh()} = torch.autograd.grad({x}.sum(), {y}, allow_unused=True, retain_graph=True)[0]",
            f"{self.fresh()} = torch.autograd.grad({x}.square().sum(), {y}, create_graph=True)[0]",
            f"{x}.sum().backward(inputs=[{y}])",
        )  # fmt: skip

    def state(self) -> str:
        x = self.floating()
        t = self.existing[x]
        y = self.name(lambda o: o.dtype == t.dtype)
        shape = self.shape()
        return self.one(
            f"{x}.grad = None", f"{x}.grad.zero_()", f"{x}.grad.mul_(2)", f"{x}.requires_grad_()",
            f"{x}.requires_grad = True",
            f"{x}.requires_grad_(False)", f"{x}.detach_()", f"{x}.data = {y}", f"{x}.data.mul_(2)", f"{x}.data[0] = 1",
            f"{self.fresh()} = {x}.data", f"{x}.set_({y})", f"{x}.set_({y}.detach())", f"{x}.resize_({shape}).fill_(1)",
            f"{x}.retain_grad()", f"{x}.register_hook(lambda g: g * 2)", f"{x}.grad = torch.ones_like({x})",
            f"{self.fresh()} = {x}.grad", f"{x}.data = {y}.detach().clone()", f"{x}.detach().zero_()",
            f"{x}.data = torch.ones({shape})", f"{self.fresh()} = {x}.clone().detach().requires_grad_()", f"del {x}",
            f"{x}.resize_as_({y}).zero_()", f"{x}.untyped_storage().fill_(0)",
        )  # fmt: skip

    def inside(self) -> str:
        mode = self.one("no_grad", "no_grad", "no_grad", "enable_grad", "inference_mode")
        inner = self.one(self.view, self.write, self.compute, self.state)()
        return f"with torch.{mode}(): {inner}"


# --- running ---------------------------------------------------------------------------------------------------------


class Run:
    """A program under one library."""

    def __init__(self, library: Any) -> None:
        self.library = library
        importlib.import_module(f"{library.__name__}.utils.checkpoint")
        self.names: dict[str, Any] = {"torch": library}

    def step(self, line: str) -> str:
        """Runs a line. Returns the type of the error it raises, or nothing."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                exec(line, self.names)
        except Exception as error:
            self.names["_error"] = f"{type(error).__name__}: {error}"
            return kind_of(error)
        for name in [name for name, t in self.names.items() if name[0] == "t" and t is None]:
            del self.names[name]
        return ""

    def tensors(self) -> dict[str, Any]:
        return {name: t for name, t in self.names.items() if name[0] == "t" and name != "torch"}


def grad_of(t: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return t.grad


# (Not `_is_view`: PyTorch's gradients are views of this and that. Memory that is shared is compared below.)
FLAGS = ("shape", "dtype", "requires_grad", "is_leaf", "is_inference", "retains_grad")


def flag(t: Any, name: str) -> Any:
    try:
        if name == "dtype":
            return name_of(t.dtype)
        found = getattr(t, name)
        return found() if callable(found) else tuple(found) if name == "shape" else found
    except (RuntimeError, IndexError) as error:  # some views must not be asked for their history
        return type(error).__name__


def sharing(tensors: dict[str, Any]) -> list[list[str]]:
    """Returns the names of tensors in groups that share memory."""
    groups: dict[int, list[str]] = {}
    for name, t in sorted(tensors.items()):
        if t.untyped_storage().nbytes():
            groups.setdefault(t.untyped_storage().data_ptr(), []).append(name)
        gradient = grad_of(t)
        if gradient is not None and gradient.untyped_storage().nbytes():
            groups.setdefault(gradient.untyped_storage().data_ptr(), []).append(f"{name}.grad")
    return sorted(group for group in groups.values() if len(group) > 1)


def difference(ours: Run, theirs: Run) -> str:
    """Returns how the tensors of two runs differ, or nothing."""
    here, there = ours.tensors(), theirs.tensors()
    if here.keys() != there.keys():
        return f"names: {sorted(here)}, in PyTorch {sorted(there)}"
    for name, t in there.items():
        mine = here[name]
        for what in FLAGS:
            if (f := flag(mine, what)) != (e := flag(t, what)):
                return f"{what} of {name}: {f}, in PyTorch {e}"
        pairs = [(name, mine, t)]
        gradient, expected = grad_of(mine), grad_of(t)
        if (gradient is None) != (expected is None):
            return f"gradient of {name}: {gradient}, in PyTorch {expected}"
        if gradient is not None:
            pairs.append((f"{name}.grad", gradient, expected))
        for label, f, e in pairs:
            if tuple(f.shape) != tuple(e.shape) or name_of(f.dtype) != name_of(e.dtype):
                return f"form of {label}: {tuple(f.shape)} {f.dtype}, in PyTorch {tuple(e.shape)} {e.dtype}"
            # Numbers in float64 may have been computed in float32.
            if t.numel() and (wrong := values_differ(numbers(f), numbers(e), "float32")):
                return f"{wrong} of {label}: {shown(numbers(f))}, in PyTorch {shown(numbers(e))}"
    if (f := sharing(here)) != (e := sharing(there)):
        return f"sharing: {f}, in PyTorch {e}"
    return ""


def held(run: Run) -> dict[str, Any]:
    return {name: numbers(t) for name, t in run.tensors().items()}


def advance(ours: Run, theirs: Run, line: str, for_torch: str = "") -> tuple[str, str]:
    """Runs a line in both. Returns how they differ, and the error both raise, or which of `LAST` is the case."""
    before = held(ours)
    expected = theirs.step(for_torch or line)
    found = ours.step(line)
    if found != expected:
        mine, other = (
            run.names.get("_error", "") if error else "nothing" for run, error in ((ours, found), (theirs, expected))
        )
        return f"error: {mine[:300]} | in PyTorch {other[:300]}", ""
    if expected and "backward" in line:
        return "", PARTIAL
    if expected and "resize" in line:
        return "", WRITTEN
    wrong = difference(ours, theirs)
    if wrong and expected:  # PyTorch may have written by the time it raises; we must not
        after = held(ours)
        if before.keys() == after.keys() and all(np.array_equal(before[n], after[n], equal_nan=True) for n in before):
            return "", WRITTEN
    return wrong, expected


def libraries() -> tuple[Any, Any]:
    import torch

    import tensorgrad

    return tensorgrad, torch


TENSOR = re.compile(r"\b(t\d+)\b")
IN_PLACE = re.compile(
    r"((?:with [^:]*: )?t\d+[^=]*?(?:(?<!\.set)(?<!ze_as)_\(| [-+*/]= |\] = ))(.*)"
)  # target, operands


def apart(line: str) -> str:
    """The line with copies for the operands of a write, so that none shares memory with what is written."""
    copies = lambda text: TENSOR.sub(r"\1.clone()", text)
    if ", out=" in line:
        operands, _, out = line.rpartition(", out=")
        return f"{copies(operands)}, out={out}"
    found = IN_PLACE.fullmatch(line)
    return found[1] + copies(found[2]) if found else line


def replay(lines: list[str], copied: bool = False) -> str:
    """Returns the difference in which a program ends, or nothing. With `copied`, PyTorch runs its writes in place on
    copies of their operands."""
    ours, theirs = map(Run, libraries())
    for line in lines:
        wrong, raised = advance(ours, theirs, line, apart(line) if copied else line)
        if wrong or raised in LAST:
            return wrong
    return ""


def made_small(lines: list[str], wrong: str) -> tuple[list[str], str]:
    """Leaves out lines as long as the program ends in a difference of the same kind."""
    kind = wrong.split()[0]
    changed = True
    while changed:
        changed = False
        for place in reversed(range(len(lines) - 1)):
            fewer = lines[:place] + lines[place + 1 :]
            found = replay(fewer)
            if found.split()[:1] == [kind] and "NameError" not in found:
                lines, wrong, changed = fewer, found, True
                break
    return lines, wrong


def too_large(run: Run) -> bool:
    for t in run.tensors().values():
        for each in (t, grad_of(t)):
            if each is not None and each.numel() and not bool((each.detach().abs() < LARGEST).all()):
                return True
    return False


def program(seed: int) -> tuple[list[str], str, Counter[str]]:
    """Writes and runs a program. Returns its lines, the difference in which it ends, and counts."""
    ours, theirs = map(Run, libraries())
    writer, lines, counted = Writer(seed, theirs.names), [], Counter({"programs": 1})
    for _ in range(STEPS):
        line = writer.line()
        lines.append(line)
        wrong, raised = advance(ours, theirs, line)
        counted.update({"steps": 1, **({"errors in both": 1} if raised else {})})
        if wrong:
            return lines, wrong, counted
        if raised in LAST or too_large(theirs):
            break
    return lines, "", counted


def check(seed: int) -> Counter[str]:
    """Runs the program of a seed. Raises: Difference with a small program, unless the difference is meant."""
    lines, wrong, counted = program(seed)
    if wrong:
        lines, wrong = made_small(lines, wrong)
        # PyTorch refuses some writes whose operands overlap with what is written, reads in others what it has already
        # written, and then cannot compute gradients; here all operands are read first, as if they were copies.
        if not meant("\n".join(lines), wrong, KNOWN) and replay(lines, copied=True):
            raise Difference("\n".join(["", *lines, f"# {wrong}"]))
        counted["differences that are meant"] += 1
    return counted
