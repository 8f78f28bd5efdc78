"""What goes wrong when a program is exported."""


class UserError(RuntimeError):
    """A program cannot be exported as it is, or not with these dynamic shapes; the message says why, and where."""


class OtherStepsError(UserError):
    """A program does other things at other sizes of its dynamic dimensions."""
