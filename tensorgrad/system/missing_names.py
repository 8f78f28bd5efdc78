"""Errors for missing module attributes: they suggest what was probably meant, or say that only PyTorch has it."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from types import ModuleType

from tensorgrad.system.lazy_modules import loaded

# Where to look for a name that is in none of PyTorch's modules above: `torch.Linear` is `torch.nn.Linear`.
_MODULES = (
    "", "nn", "nn.functional", "optim", "optim.lr_scheduler", "linalg", "fft", "special", "distributions", "func",
)  # fmt: skip


def no_attribute(module: str, name: str) -> AttributeError:
    """Returns the error that a module's `__getattr__` raises for a missing name.

    Names that begin with `_` are looked up by programs rather than people: they get no advice, which would take time.

    >>> from tensorgrad.system.missing_names import no_attribute
    >>> no_attribute("tensorgrad.nn", "Lineer")
    AttributeError("module 'tensorgrad.nn' has no attribute 'Lineer'; did you mean 'Linear'?")
    """
    text = f"module {module!r} has no attribute {name!r}"
    return AttributeError(text if name[:1] in ("", "_") else _WithAdvice(text, module, name), name=name)


class _WithAdvice(str):
    """The text of an error, to which advice is added when it is read: most of these errors only answer `hasattr`."""

    def __new__(cls, text: str, module: str, name: str) -> _WithAdvice:
        made = super().__new__(cls, text)
        made._missing = module, name
        return made

    _missing: tuple[str, str]

    def __str__(self) -> str:
        module, name = self._missing
        no_advice = is_file(module, name)
        return super().__str__() + ("" if no_advice else advice(module.removeprefix("tensorgrad").lstrip("."), name))

    def __repr__(self) -> str:
        return repr(str(self))

    def __reduce__(self) -> tuple:
        return str, (str(self),)


def is_file(module: str, name: str) -> bool:
    """Whether a package has a file of this name: `from package import file` tries the attribute before the file."""
    from importlib.machinery import PathFinder

    return PathFinder.find_spec(f"{module}.{name}", getattr(sys.modules.get(module), "__path__", [])) is not None


def only_in_torch(module: str) -> set[str]:
    """The names that PyTorch's module has and the one here has not.

    >>> from tensorgrad.system.missing_names import only_in_torch
    >>> sorted(only_in_torch("nn"))
    ['intrinsic', 'qat', 'quantizable', 'quantized']
    """
    from tensorgrad.system.absent_names import ABSENT, MISSING  # rarely needed

    place = f"torch.{module}".rstrip(".")
    inside = (full.removeprefix(f"{place}.") for full in ABSENT if full.rpartition(".")[0] == place)
    return {*MISSING.get(module, "").split(), *(name for name in inside if name[0] != "_")}


def advice(module: str, name: str) -> str:
    """Returns the text to append to the error.

    >>> from tensorgrad.system.missing_names import advice
    >>> advice("", "miopen_rnn")
    ' (PyTorch has it, tensorgrad does not: run `python -m tensorgrad.coverage` to see what is available)'
    >>> import tensorgrad.nn
    >>> advice("nn", "Lineer"), advice("", "no_such_thing_at_all")
    ("; did you mean 'Linear'?", '')
    """
    if name in only_in_torch(module):
        return " (PyTorch has it, tensorgrad does not: run `python -m tensorgrad.coverage` to see what is available)"
    for other in _MODULES:  # only loaded modules: loading the others would take too long for a hint
        candidate = sys.modules.get(f"tensorgrad.{other}".rstrip("."))
        if candidate is not None and other != module and name in dir(candidate):
            return f"; did you mean 'torch.{other}.{name}'?".replace("..", ".")
    here = sys.modules.get(f"tensorgrad.{module}".rstrip("."))
    return suggestion(name, _known(here, name)) if here is not None else ""


def _known(module: ModuleType, name: str) -> list[str]:
    """Candidates for a misspelled name; without modules if it is capitalized like a class."""
    own = loaded(module)
    names = {*dir(module), *own.get("__all__", ())}
    return [n for n in sorted(names) if not (name[0].isupper() and isinstance(own.get(n), ModuleType))]


def suggestion(name: str, known: Iterable[str]) -> str:
    """Returns the text to append to an error about an unknown name.

    >>> from tensorgrad.system.missing_names import suggestion
    >>> suggestion("mull", ["add", "mul"]), suggestion("xyz", ["add", "mul"])
    ("; did you mean 'mul'?", '')
    """
    near = closest(name, known)
    return f"; did you mean {near!r}?" if near else ""


def closest(name: str, known: Iterable[str]) -> str | None:
    """Returns the name that this is probably a misspelling of; None if there is none.

    >>> from tensorgrad.system.missing_names import closest
    >>> closest("LogSoftMax", ["LogSoftmax", "Softmax"]), closest("crossentropy", ["cross_entropy", "entropy"])
    ('LogSoftmax', 'cross_entropy')
    >>> closest("tesnor", ["tensor", "Tensor"]), closest("xyz", ["tensor"])
    ('tensor', None)
    """
    from difflib import get_close_matches

    def plain(word: str) -> str:
        return word.replace("_", "").lower()

    public = [word for word in known if not word.startswith("_")]
    wanted = plain(name)
    same = [word for word in public if plain(word) == wanted]
    if same:
        return min(same, key=lambda word: (word[:1].isupper() != name[:1].isupper(), word))
    near = [word for word in public if abs(len(word) - len(name)) <= 2 and (word[0] == name[0] or word[-1] == name[-1])]
    return next(iter(get_close_matches(name, near, 1, 0.75 if len(name) > 4 else 0.8)), None)
