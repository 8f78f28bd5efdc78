import tensorgrad as torch

__doc__ = """A small expression, its graph and its derivatives.

    python examples/graph.py --a 0.5 --b 0.75

An expression of two numbers is computed. Every operation leaves a node behind that remembers where its inputs came
from: the program prints that graph, runs it backwards to get the derivatives, checks them against the slope between two
neighbouring points, and differentiates once more. out/graph.svg shows the function and its derivatives along b;
under tensorgrad, out/expression.svg shows the graph itself.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from common import make_parser, run, start
from picture import save_panels


def expression(a, b):
    """log(a b) · sin(b): small, but `b` reaches the result on two ways, and its gradient is the sum of both."""
    return torch.log(a * b) * torch.sin(b)


def derivative(a, b):
    """df/db, itself a tensor with a graph: backward leaves one if it is told to create it."""
    return torch.autograd.grad(expression(a, b), b, create_graph=True)[0]


def print_graph(node, depth=0, label="result"):
    """Print `node` and, indented under it, where its inputs came from; the leaves are the tensors that we made."""
    if node is None:  # an input that needs no gradient
        return
    name = node.name().rpartition("::")[2]
    leaf = f" of {node.variable.item():g}" if hasattr(node, "variable") else ""
    print(f"{'  ' * depth}{label} <- {name}{leaf}")
    for number, (source, _) in enumerate(node.next_functions):
        print_graph(source, depth + 1, f"input {number}")


def slope(function, x, width=1e-6):
    """The derivative as it is defined: the slope between two points close to `x`."""
    return (function(x + width) - function(x - width)) / (2 * width)


def draw(a, file):
    """The function of b, its first and its second derivative, all from the graph."""
    b = torch.linspace(0.2, 6.0, 200, dtype=a.dtype, device=a.device, requires_grad=True)
    y = expression(a, b)
    (first,) = torch.autograd.grad(y.sum(), b, create_graph=True)  # the values do not mix: one gradient for each b
    (second,) = torch.autograd.grad(first.sum(), b)
    x = b.tolist()
    lines = {"f(b)": (x, y.tolist()), "df/db": (x, first.tolist()), "d²f/db²": (x, second.tolist())}
    save_panels([{"title": f"f = log(a b) sin(b), a = {a.item():g}", "lines": lines, "range": (0, 6, -5, 5)}], file)


def main():
    parser = make_parser(__doc__, "graph")
    parser.add_argument("--a", type=float, default=0.5, help="first number, above zero (%(default)s)")
    parser.add_argument("--b", type=float, default=0.75, help="second number, above zero (%(default)s)")
    options = start(torch, parser)
    if min(options.a, options.b) <= 0:
        raise ValueError(f"the logarithm needs numbers above zero, got --a {options.a:g} --b {options.b:g}")

    a = torch.tensor(options.a, dtype=torch.float64, device=options.device, requires_grad=True)
    b = torch.tensor(options.b, dtype=torch.float64, device=options.device, requires_grad=True)
    y = expression(a, b)
    print(f"log({options.a:g} * {options.b:g}) * sin({options.b:g}) = {y.item():.6f}\n")
    print_graph(y.grad_fn)

    y.backward()
    (second,) = torch.autograd.grad(derivative(a, b), b)
    by_hand = b.cos() * (a * b).log() + b.sin() / b
    print("\n        from the graph   from two points")
    print(f"df/da   {a.grad.item():14.6f}   {slope(lambda v: expression(v, b), a).item():15.6f}")
    print(f"df/db   {b.grad.item():14.6f}   {slope(lambda v: expression(a, v), b).item():15.6f}")
    print(f"d2f/db2 {second.item():14.6f}   {slope(lambda v: derivative(a, v), b).item():15.6f}")
    print(f"by hand, df/db = cos(b) log(a b) + sin(b) / b = {by_hand.item():.6f}\n")

    draw(a.detach(), options.out / "graph.svg")
    print(f"picture: {options.out / 'graph.svg'}")
    if hasattr(y, "render"):  # tensorgrad draws its graphs; PyTorch has nothing built in
        expression(a, b).render(names={"a": a, "b": b}).save(options.out / "expression.svg")
        print(f"the graph: {options.out / 'expression.svg'}")


if __name__ == "__main__":
    run(main)
