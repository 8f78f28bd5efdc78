"""Runs passes over a graph, in an order that fits what is said about them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from tensorgrad.fx.graph_module import GraphModule
from tensorgrad.fx.passes.infra.pass_base import PassResult
from tensorgrad.nn import Module

__all__ = ["PassManager", "pass_result_wrapper", "this_before_that_pass_constraint"]

_Pass = Callable[..., Any]
_Constraint = Callable[[_Pass, _Pass], bool]


def pass_result_wrapper(fn: _Pass) -> _Pass:
    """Makes a pass of a function that changes a module and returns it, or nothing.

    >>> from tensorgrad.fx.passes.infra.pass_manager import pass_result_wrapper
    >>> pass_result_wrapper(lambda module: None)(torch.fx.symbolic_trace(lambda x: x)).modified
    True
    """

    @functools.wraps(fn)
    def wrapped(gm: Module) -> Any:
        result = fn(gm)
        if result is None:
            return PassResult(gm, True)
        return PassResult(result, True) if isinstance(result, Module) else result

    if not inspect.isfunction(fn):
        wrapped.__name__ = type(fn).__name__
    return wrapped


def this_before_that_pass_constraint(this: _Pass, that: _Pass) -> _Constraint:
    """Returns the constraint that one pass runs before another: a function that says whether two may run in an order.

    >>> from tensorgrad.fx.passes.infra.pass_manager import this_before_that_pass_constraint
    >>> holds = this_before_that_pass_constraint(min, max)
    >>> holds(min, max), holds(max, min)
    (True, False)
    """
    return lambda a, b: a != that or b != this


class PassManager:
    """Runs passes one after another.

    Args:
        passes: Functions of a module that return a `PassResult`.
        constraints: Functions of two passes that say whether the first may run before the second.
        steps: How often all of them run at most; they end when none has changed anything.
        run_checks_after_each_pass: Whether `check` runs after each pass as well as before all.
        suppress_check_failures: Accepted for compatibility.

    >>> from tensorgrad.fx.passes.infra.pass_manager import PassManager, pass_result_wrapper
    >>> result = PassManager([pass_result_wrapper(lambda module: print("here"))])(torch.nn.Linear(2, 2))
    here
    >>> result.modified
    True
    """

    def __init__(
        self,
        passes: list[_Pass] | None = None,
        constraints: list[_Constraint] | None = None,
        steps: int | None = None,
        run_checks_after_each_pass: bool = False,
        suppress_check_failures: bool = False,
    ) -> None:
        self.passes = passes or []
        self.constraints = constraints or []
        self.steps = steps or 1
        self.run_checks_after_each_pass = run_checks_after_each_pass
        self.suppress_check_failures = suppress_check_failures
        self._validated = False

    def add_pass(self, _pass: _Pass) -> None:
        """Adds a pass."""
        self.passes.append(_pass)
        self._validated = False

    def add_constraint(self, constraint: _Constraint) -> None:
        """Adds a constraint."""
        self.constraints.append(constraint)
        self._validated = False

    def add_checks(self, check: Callable[[Module], None]) -> None:
        """Makes a function the `check` of modules.

        Raises:
            TypeError: If it does not take one argument.
        """
        if len(inspect.signature(check).parameters) != 1:
            raise TypeError("PassManager check function should only take in one variable, a module")
        self.check = check  # type: ignore[assignment]

    def check(self, module: Module) -> None:
        """Raises an error if a module is not as it must be: here never."""

    def validate_constraints(self) -> None:
        """Checks the order of the passes. Raises: RuntimeError if it does not fit the constraints."""
        if self._validated:
            return
        for constraint in self.constraints:
            for i, first in enumerate(self.passes):
                for k, second in enumerate(self.passes[i + 1 :]):
                    if not constraint(first, second):
                        raise RuntimeError(
                            f"pass schedule constraint violated. Expected {first} before {second} but found {first} at "
                            f"index {i} and {second} at index {k} in pass list."
                        )
        self._validated = True

    def solve_constraints(self) -> None:
        """Orders the passes. Raises: RuntimeError if no order fits the constraints."""
        if self.constraints:
            self.passes = _ordered(self.passes, self.constraints)
        self._validated = True

    def __call__(self, module: Module) -> PassResult:
        if not self._validated:
            self.solve_constraints()
        self.check(module)
        ever = False
        for _ in range(self.steps):
            changed = False
            for i, one in enumerate(self.passes):
                try:
                    module, modified = self._run(one, module)
                except Exception as error:
                    before = [_name(p) for p in self.passes[:i]]
                    raise Exception(  # as PyTorch does
                        f"An error occurred when running the '{_name(one)}' pass after the following passes: {before}"
                    ) from error
                changed = changed or modified
            ever = ever or changed
            if not changed:
                break
        return PassResult(module, ever)

    def _run(self, one: _Pass, module: Module) -> tuple[Module, bool]:
        result = one(module)
        if not hasattr(result, "graph_module"):
            raise TypeError(
                f"The result of the pass {_name(one)} should be type PassResult."
                "Please wrap it with pass_result_wrapper()"
            )
        if isinstance(result.graph_module, GraphModule):
            result.graph_module.recompile()
        if self.run_checks_after_each_pass:
            self.check(result.graph_module)
        return result.graph_module, result.modified


def _name(one: _Pass) -> str:
    return one.__name__ if inspect.isfunction(one) else type(one).__name__


def _ordered(passes: Sequence[_Pass], constraints: Sequence[_Constraint]) -> list[_Pass]:
    """The passes in an order in which each comes after those that must not come after it."""
    waits = {a: {b for b in passes if b != a and not all(fits(a, b) for fits in constraints)} for a in passes}
    order = [a for a in passes if not waits[a]]
    for done in order:  # grows
        for a in passes:
            if done in waits[a]:
                waits[a].remove(done)
                order += [] if waits[a] else [a]
    if len(order) < len(passes):
        left = [a for a in passes if waits[a]]
        raise RuntimeError(f"Circular dependency detected within the following passes: {left}")
    return order
