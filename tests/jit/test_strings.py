"""Strings in programs that PyTorch wrote: what is here gives the same text, numbers and errors."""

import io
import warnings

import pytest

import tensorgrad as tg

torch = pytest.importorskip("torch", reason="torch writes the archives")
pytestmark = pytest.mark.filterwarnings("ignore")
# ruff: noqa: UP031, UP032


class Comparisons(torch.nn.Module):
    def forward(self, a: str, b: str, n: int, t: float):
        return a < b, a <= b, a > b, a >= b, a == b, a != b, "l" in a, "z" in a, "x" not in a, len(a), ord(a[0])


class Parts(torch.nn.Module):
    def forward(self, a: str, b: str, n: int, t: float):
        return [a + b, a[1:3], a[-2:], a[::2], a[0], a[-1], "-".join([a, b]), chr(65), hex(255), bin(5), oct(8)]


class Formats(torch.nn.Module):
    def forward(self, a: str, b: str, n: int, t: float):
        return ["{} and {}!".format(a, n), f"{a}:{n}:{t}", "%s-%d-%f" % (a, n, t), "100%% %s" % a, str(t), str(n),
                str(n > 2), str([1, 2]), str((1, "x")), str(1e20), str(0.1), str(float("inf")), str(2.0),
                str([1.5, 2.0]), str({"k": 1}), str(None)]  # fmt: skip


class Changes(torch.nn.Module):
    def forward(self, a: str, b: str, n: int, t: float):
        return [a.upper(), b.lower(), a.capitalize(), a.title(), a.swapcase(), a.strip(), a.strip("h"),
                a.lstrip("he"), a.rstrip("o "), a.replace("l", "L"), a.replace("l", "L", 1), a.center(20, "*"),
                a.ljust(20) + "|",
                a.rjust(20, "-"), a.zfill(20), a.expandtabs(4), "tab\t\"q\" \\ 'é' ü 日 \x01",
                "é".upper()]  # fmt: skip


class Pieces(torch.nn.Module):
    def forward(self, a: str, b: str, n: int, t: float):
        return (a.split(), a.split("l"), a.split("l", 1), a.rsplit("l", 1), "x\ny\r\nz".splitlines(),
                "x\ny".splitlines(True), a.partition("l"), a.rpartition("l"), a.partition("?"), a.rpartition("?"),
                sorted(a.split("o")), [c + "." for c in a])  # fmt: skip


class Places(torch.nn.Module):
    def forward(self, a: str, b: str, n: int, t: float):
        return [a.find("l"), a.find("l", 3), a.find("l", 1, 3), a.find("?"), a.rfind("l"), a.rfind("l", 0, 3),
                a.count("l"), a.count("l", 3), a.count(""), int("12"), int(b == "x")]  # fmt: skip


class Kinds(torch.nn.Module):
    def forward(self, a: str, b: str, n: int, t: float):
        return [a.startswith("he"), a.startswith("he", 1), a.endswith("o"), a.endswith("l", 0, 3), a.isalpha(),
                a.isdigit(), "12".isdigit(), a.isspace(), " ".isspace(), a.isupper(), a.islower(), a.istitle(),
                a.isalnum(), a.isnumeric(), a.isdecimal(), a.isidentifier(), a.isprintable()]  # fmt: skip


class Errors(torch.nn.Module):
    def forward(self, a: str, text: str, n: int):
        if n == 0:
            return a.index(text)
        if n == 1:
            return a.rindex(text)
        return len(text % n)


def both(module):
    """A module as PyTorch scripts it, and its archive as it is loaded here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scripted = torch.jit.script(module)
    file = io.BytesIO()
    torch.jit.save(scripted, file)
    file.seek(0)
    return scripted, tg.jit.load(file)


@pytest.mark.parametrize("kind", [Comparisons, Parts, Formats, Changes, Pieces, Places, Kinds])
def test_strings_are_pytorchs(kind):
    theirs, ours = both(kind())
    for args in (("hello world", "b", 3, 2.5), ("hello", "hello", 0, 3.0), ("a\tb", "ZZ", 255, 123456789.123),
                 ("x", "", -7, 1e-7)):  # fmt: skip
        assert ours(*args) == theirs(*args)


def test_errors_are_pytorchs():
    theirs, ours = both(Errors())
    assert ours("hello", "l", 0) == theirs("hello", "l", 0) == 2 and ours("hello", "l", 1) == theirs("hello", "l", 1)
    for args in (("hello", "x", 0), ("hello", "x", 1), ("", "%5d", 2), ("", "%x", 2), ("", "%d %d", 2)):
        for module in (theirs, ours):
            with pytest.raises(RuntimeError):
                module(*args)
