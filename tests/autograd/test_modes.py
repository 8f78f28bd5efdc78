"""Grad mode, inference mode: nested, as decorators, around generators, and what they leave behind."""

import threading

import pytest

import tensorgrad as torch_
from tests.support.alike import alike, error


@alike
def test_modes_nest(torch):
    x = torch.ones(1, requires_grad=True)
    seen = []

    def look():
        seen.append(((x * 2).requires_grad, torch.is_grad_enabled(), torch.is_inference_mode_enabled()))

    look()
    with torch.no_grad():
        look()
        with torch.no_grad():
            look()
        look()
        with torch.enable_grad():
            look()
            with torch.set_grad_enabled(False):
                look()
            with torch.inference_mode():
                look()
                with torch.inference_mode(False):
                    look()
            look()
        look()
    look()
    torch.set_grad_enabled(False)
    look()
    torch.set_grad_enabled(True)
    look()
    try:
        with torch.no_grad():
            raise ValueError
    except ValueError:
        look()
    return seen


@alike
def test_modes_as_decorators(torch):
    x = torch.ones(1, requires_grad=True)

    @torch.no_grad()
    def first():
        return (x * 2).requires_grad

    @torch.no_grad
    def second():
        return (x * 2).requires_grad

    @torch.enable_grad()
    def third():
        return (x * 2).requires_grad

    @torch.inference_mode()
    def fourth():
        """Text."""
        return (x * 2).is_inference()

    switch = torch.set_grad_enabled(False)
    fifth = switch(first)
    torch.set_grad_enabled(True)
    with torch.no_grad():
        inside = third()
    return first(), second(), inside, fourth(), fourth.__name__, fourth.__doc__, fifth(), torch.is_grad_enabled()


@alike
def test_modes_around_generators(torch):
    x = torch.ones(1, requires_grad=True)
    seen = []

    @torch.no_grad()
    def numbers():
        try:
            while True:
                got = yield (x * 2).requires_grad
                seen.append((got, torch.is_grad_enabled()))
        except ValueError:
            seen.append(("thrown", torch.is_grad_enabled()))
            yield "caught"
        finally:
            seen.append(("closed", torch.is_grad_enabled()))

    running = numbers()
    outside = [
        next(running),
        (x * 2).requires_grad,
        running.send(1),
        running.throw(ValueError),
        torch.is_grad_enabled(),
    ]
    running.close()
    return outside, seen


def test_modes_belong_to_their_thread():
    seen = {}

    def look():
        seen["thread"] = (torch_.is_grad_enabled(), torch_.is_inference_mode_enabled())

    with torch_.inference_mode():
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        seen["here"] = (torch_.is_grad_enabled(), torch_.is_inference_mode_enabled())
    assert seen == {"thread": (True, False), "here": (False, True)}


@alike
def test_inference_tensors(torch):
    x = torch.ones(2, requires_grad=True)
    normal = torch.ones(2)
    with torch.inference_mode():
        made = torch.ones(2)
        computed = normal * 2
        computed.add_(1)  # allowed inside
        computed[0] = 9
        view = normal[0]
        view.add_(1)
        parts = [*normal.unbind(), *normal.split(1), normal.detach(), normal.view(2, 1), normal.data]
        random = [
            torch.rand(1),
            torch.tensor(1.0),
            torch.zeros_like(normal),
            torch.arange(3),
            torch.max(made, 0).values,
        ]
    results = [
        [t.is_inference() for t in (*parts, *random)],
        (made.is_inference(), computed.is_inference(), normal.is_inference(), view.is_inference()),
        computed.clone(),
        normal,
        error(lambda: computed._version),
        error(computed.add_, 1),
        error(lambda: x * computed),
        error(computed.requires_grad_),
        (x + computed).requires_grad,  # allowed: nothing is saved
        computed.clone().is_inference(),
        normal._version,
    ]
    return results


def test_a_refused_write_to_an_inference_tensor_leaves_no_trace():
    with torch_.inference_mode():
        x = torch_.ones(2)
    for write in (lambda: x.add_(1), lambda: x.exp_(), lambda: x.fill_(3), x.zero_, lambda: x.__setitem__(0, 5)):
        with pytest.raises(RuntimeError, match="Inplace update to inference tensor outside InferenceMode"):
            write()
    assert x.tolist() == [1.0, 1.0]
