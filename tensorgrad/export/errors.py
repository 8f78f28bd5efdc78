"""What goes wrong when a program is exported."""


class UserError(RuntimeError):
    """A program cannot be exported as it is, or not with these dynamic shapes; the message says why, and where.

    >>> class Branch(torch.nn.Module):
    ...     def forward(self, x):
    ...         return x if x.sum() > 0 else -x
    >>> torch.export.export(Branch(), (torch.ones(2),))
    Traceback (most recent call last):
        ...
    tensorgrad.export.errors.UserError: Could not guard on data-dependent expression: the value of 'gt', of shape [], ...
    """


class OtherStepsError(UserError):
    """A program does other things at other sizes of its dynamic dimensions."""
