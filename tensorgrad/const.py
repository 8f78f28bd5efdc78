"""The names by which ops, devices and dtypes are registered and looked up, for extensions.

    @OpDispatch.register(OP.MUL, DEVICE.CPU)
    def my_mul(x, y): ...

`OP.MUL` is "mul": every row of `ops/` is available here under its name in capitals. A new device needs no constant: use
the name of its storage.
"""

from tensorgrad import dtypes
from tensorgrad.rows.kernel_tables import OPS
from tensorgrad.system.missing_names import suggestion


class _Names:
    """Upper-case attributes that are looked up in a table."""

    def __init__(self, what: str, table) -> None:
        self._what, self._table = what, table

    def __getattr__(self, name: str) -> str:
        found = name.lower()
        if name != name.upper() or found not in self._table:
            raise AttributeError(f"there is no {self._what} {name!r}{suggestion(found, self._table)}")
        return found

    def __dir__(self) -> list[str]:
        return sorted(name.upper() for name in self._table)


class DEVICE:
    """The device types that ship with the library."""

    CPU = "cpu"
    CUDA = "cuda"
    META = "meta"


OP = _Names("op", OPS)
DTYPE = _Names("dtype", dtypes.BY_NAME)
