"""Strings in programs that PyTorch wrote: what is here gives the same text, numbers and errors."""

import io
import warnings

import pytest

import tensorgrad as tg

torch = pytest.importorskip("torch", reason="torch writes the archives")


# ruff: noqa: UP031, UP032


class Strings(torch.nn.Module):
    def forward(self, a: str, b: str, n: int, t: float):
        e: list[str] = []
        for c in a:
            e.append(c + ".")
        if a < b:
            e.append("less")
        if a <= b:
            e.append("le")
        if a > b:
            e.append("gt")
        if a >= b:
            e.append("ge")
        if a == b:
            e.append("eq")
        if a != b:
            e.append("ne")
        e.append(a + b)
        e.append(a[1:3])
        e.append(a[-2:])
        e.append(a[::2])
        e.append(a[0])
        e.append(a[-1])
        e.append("{} and {}!".format(a, n))
        e.append(f"{a}:{n}:{t}")
        e.append("%s-%d-%f" % (a, n, t))
        e.append("100%% %s" % a)
        e.append(str(t))
        e.append(str(n))
        e.append(str(n > 2))
        e.append(str([1, 2]))
        e.append(str((1, "x")))
        e.append(str(1e20))
        e.append(str(0.1))
        e.append(str(float("inf")))
        e.append(str(2.0))
        e.append(a.upper())
        e.append(b.lower())
        e.append(a.capitalize())
        e.append(a.title())
        e.append(a.swapcase())
        e.append(a.strip())
        e.append(a.strip("h"))
        e.append(a.lstrip("he"))
        e.append(a.rstrip("o "))
        e.append(a.replace("l", "L"))
        e.append(a.replace("l", "L", 1))
        e.append(a.center(20, "*"))
        e.append(a.ljust(20) + "|")
        e.append(a.rjust(20, "-"))
        e.append(a.zfill(20))
        e.append(a.expandtabs(4))
        e += a.split()
        e += a.split("l")
        e += a.split("l", 1)
        e += a.rsplit("l", 1)
        e += "x\ny\r\nz".splitlines()
        e += "x\ny".splitlines(True)
        e += a.partition("l")
        e += a.rpartition("l")
        e += a.partition("?")
        e += a.rpartition("?")
        e.append(", ".join(e[:3]))
        e.append(a)
        i: list[int] = [
            a.find("l"),
            a.find("l", 3),
            a.find("l", 1, 3),
            a.find("?"),
            a.rfind("l"),
            a.rfind("l", 0, 3),
            a.count("l"),
            a.count("l", 3),
            a.count(""),
            len(a),
            ord(a[0]),
            int("12"),
            int(b == "x"),
        ]
        f: list[float] = [float("1.5"), float("-inf"), float("1e3")]
        o: list[bool] = [
            a.startswith("he"),
            a.startswith("he", 1),
            a.endswith("o"),
            a.endswith("l", 0, 3),
            a.isalpha(),
            a.isdigit(),
            "12".isdigit(),
            a.isspace(),
            " ".isspace(),
            a.isupper(),
            a.islower(),
            a.istitle(),
            a.isalnum(),
            a.isnumeric(),
            a.isdecimal(),
            a.isidentifier(),
            a.isprintable(),
            "l" in a,
            "z" in a,
            "x" not in a,
            bool(a == ""),
        ]
        d: dict[str, int] = {"k": 1}
        d[a] = n
        e.append(chr(65))
        e.append(hex(255))
        e.append(bin(5))
        e.append(oct(8))
        e.append("tab\t\"q\" \\ 'é' ü 日本 \x01")
        u = "é日"
        i.append(len(u))
        e.append(u.upper())
        k: list[str] = sorted(e[:6])
        e.append(str(d))
        return e, i, f, o, d, k


def both(module):
    """A module as PyTorch scripts it, and its archive as it is loaded here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scripted = torch.jit.script(module)
    file = io.BytesIO()
    torch.jit.save(scripted, file)
    file.seek(0)
    return scripted, tg.jit.load(file)


@pytest.mark.filterwarnings("ignore")
def test_strings_are_pytorchs():
    theirs, ours = both(Strings())
    for args in (
        ("hello world", "b", 3, 2.5), ("A\u00e9", "", -7, 1e-7), ("hello", "hello", 0, 3.0),
        ("a\tb", "zz", 255, 123456789.123),
    ):  # fmt: skip
        assert ours(*args) == theirs(*args)


class Places(torch.nn.Module):
    def forward(self, a: str, text: str, n: int):
        if n == 0:
            return a.index(text)
        if n == 1:
            return a.rindex(text)
        return len(text % n)


@pytest.mark.filterwarnings("ignore")
def test_errors_are_pytorchs():
    theirs, ours = both(Places())
    assert ours("hello", "l", 0) == theirs("hello", "l", 0) == 2 and ours("hello", "l", 1) == theirs("hello", "l", 1)
    for args in (("hello", "x", 0), ("hello", "x", 1), ("", "%5d", 2), ("", "%x", 2), ("", "%d %d", 2)):
        for module in (theirs, ours):
            with pytest.raises(RuntimeError):
                module(*args)
