"""Custom functions that several tests differentiate, of the library they are given."""


def cube(library):
    """Returns the function x**3, with a derivative of each direction, and a `setup_context`, so that `vmap` runs it."""

    class Cube(library.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x):
            return x**3

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)
            ctx.save_for_forward(*inputs)

        @staticmethod
        def backward(ctx, g):
            return g * 3 * ctx.saved_tensors[0] ** 2

        @staticmethod
        def jvp(ctx, t):
            return t * 3 * ctx.saved_tensors[0] ** 2

    return Cube
