import tensorgrad as torch

__doc__ = """A small expression, its graph and its derivatives.

    python examples/graph.py --a 0.5 --b 0.75

Computes an expression of two numbers. Every operation records a node that refers to the nodes of its inputs. The
program prints this graph, runs it backwards to get the derivatives, compares them with the slope between two
neighboring points, and differentiates again. out/graph.svg shows the function and its derivatives along b; under
tensorgrad, out/expression.svg shows the graph itself.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from common import make_parser, run, start
from picture import save_panels


def expression(a, b):
    """log(a b) · sin(b): `b` reaches the result on two paths, and its gradient is the sum over both."""
    return torch.log(a * b) * torch.sin(b)


def derivative(a, b):
    """df/db, itself a tensor with a graph, because of `create_graph=True`."""
    return torch.autograd.grad(expression(a, b), b, create_graph=True)[0]


def print_graph(node, depth=0, label="result"):
    """Prints `node` and, indented below it, the nodes of its inputs; the leaves are the tensors that we created."""
    if node is None:  # an input that requires no gradient
        return
    name = node.name().rpartition("::")[2]
    leaf = f" of {node.variable.item():g}" if hasattr(node, "variable") else ""
    print(f"{'  ' * depth}{label} <- {name}{leaf}")
    for number, (source, _) in enumerate(node.next_functions):
        print_graph(source, depth + 1, f"input {number}")


def slope(function, x, width=1e-6):
    """The derivative by definition: the slope between two points close to `x`."""
    return (function(x + width) - function(x - width)) / (2 * width)


def draw(a, file):
    """Draws the function of b, its first and its second derivative, all computed from the graph."""
    b = torch.linspace(0.2, 6.0, 200, dtype=a.dtype, device=a.device, requires_grad=True)
    y = expression(a, b)
    (first,) = torch.autograd.grad(y.sum(), b, create_graph=True)  # elementwise, so this is the derivative at each b
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
    if hasattr(y, "render"):  # tensorgrad can draw graphs; PyTorch has nothing built in
        expression(a, b).render(names={"a": a, "b": b}).save(options.out / "expression.svg")
        print(f"the graph: {options.out / 'expression.svg'}")


if __name__ == "__main__":
    run(main)
