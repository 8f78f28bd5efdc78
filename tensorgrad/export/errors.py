"""What goes wrong when a program is exported."""


class UserError(RuntimeError):
    """A program cannot be exported as it is, or not with these dynamic shapes; the message says why, and where.

    >>> class Decides(torch.nn.Module):
    ...     def forward(self, x):
    ...         return x if x.sum() > 0 else -x
    >>> try:
    ...     torch.export.export(Decides(), (torch.ones(2),))
    ... except torch.export.UserError:
    ...     print("refused")
    refused
    """


class OtherStepsError(UserError):
    """A program does other things at other sizes of its dynamic dimensions."""
