"""Several GPUs: work is done on the one that holds the arrays. With a single GPU, none of this is used."""

from __future__ import annotations

from functools import wraps

from tensorgrad import devices


def guarded(function):
    """Wraps a function of arrays so that it runs with their GPU as the current one.

    Arrays are searched for in the arguments, including lists and tensors. Raises: RuntimeError for arrays of two GPUs.
    """
    from cupy import ndarray
    from cupy.cuda import Device
    from cupy.cuda.runtime import getDevice as current

    def card_of(values):
        card = None
        for value in values:
            if value.__class__ is ndarray:
                other = value.data.device_id
            elif value.__class__ is list or value.__class__ is tuple:
                other = card_of(value)
            else:
                other = card_of((value._array,)) if hasattr(value, "_array") else None
            if card is None:
                card = other
            elif other is not None and other != card:
                raise_two_devices({devices.device("cuda", card), devices.device("cuda", other)})
        return card

    @wraps(function)
    def run(*values, **options):
        card = card_of(values if not options else (*values, *options.values()))
        if card is None or card == current():
            return function(*values, **options)
        with Device(card):
            return function(*values, **options)

    return run


def raise_two_devices(found, about: str = "") -> None:
    """Raises: RuntimeError naming the devices of operands that should be on the same one."""
    names = sorted(map(str, found), key=lambda name: (name == "cpu", name))
    raise RuntimeError(
        f"Expected all tensors to be on the same device, but found at least two devices, {' and '.join(names)}!{about}"
    )
