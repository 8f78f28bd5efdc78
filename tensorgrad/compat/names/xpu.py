"""`torch.xpu`: Intel GPUs, which are not supported."""

from tensorgrad.absent_device import functions as _functions

_made = _functions("xpu")

can_device_access_peer = _made["can_device_access_peer"]
current_device = _made["current_device"]
current_stream = _made["current_stream"]
device_count = _made["device_count"]
empty_cache = _made["empty_cache"]
get_device_capability = _made["get_device_capability"]
get_device_name = _made["get_device_name"]
get_device_properties = _made["get_device_properties"]
get_rng_state = _made["get_rng_state"]
init = _made["init"]
initial_seed = _made["initial_seed"]
is_available = _made["is_available"]
is_bf16_supported = _made["is_bf16_supported"]
is_initialized = _made["is_initialized"]
manual_seed = _made["manual_seed"]
manual_seed_all = _made["manual_seed_all"]
max_memory_allocated = _made["max_memory_allocated"]
max_memory_reserved = _made["max_memory_reserved"]
mem_get_info = _made["mem_get_info"]
memory_allocated = _made["memory_allocated"]
memory_reserved = _made["memory_reserved"]
seed = _made["seed"]
seed_all = _made["seed_all"]
set_device = _made["set_device"]
set_rng_state = _made["set_rng_state"]
set_stream = _made["set_stream"]
synchronize = _made["synchronize"]


class Stream:
    """A queue of work on an Intel GPU. None can be made.

    >>> torch.xpu.Stream()
    Traceback (most recent call last):
        ...
    RuntimeError: Tried to instantiate dummy base class Stream
    """

    def __new__(cls, *args, **options):
        raise RuntimeError(f"Tried to instantiate dummy base class {cls.__name__}")


class Event(Stream):
    """A mark in such a queue. None can be made.

    >>> torch.xpu.Event()
    Traceback (most recent call last):
        ...
    RuntimeError: Tried to instantiate dummy base class Event
    """


class StreamContext:
    """A context manager that changes nothing, whatever its stream is.

    >>> with torch.xpu.StreamContext(None):
    ...     x = torch.ones(2)
    """

    def __init__(self, stream):
        self.stream = stream

    def __enter__(self):
        return None

    def __exit__(self, type, value, traceback):
        return None


def stream(stream):
    """Returns a context manager that changes nothing, whatever the stream is.

    >>> with torch.xpu.stream(None):
    ...     x = torch.ones(2)
    """
    return StreamContext(stream)


class device:
    """A context manager that would make an Intel GPU the current one: entering it raises an error.

    >>> with torch.xpu.device(0):
    ...     pass
    Traceback (most recent call last):
        ...
    NotImplementedError: PyTorch was compiled without XPU support
    """

    def __init__(self, device):
        self.idx = device

    def __enter__(self):
        raise NotImplementedError("PyTorch was compiled without XPU support")

    def __exit__(self, type, value, traceback):
        return False
