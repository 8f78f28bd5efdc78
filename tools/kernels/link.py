"""Links a family's object files (ELF, position-independent) to what the package's loader puts into memory as it is.

One file of a processor serves all systems, so there is one linker, and a loader that knows of no symbols or sections.
The result has three parts: code with its constants; words that hold addresses (first those of what the code imports,
which the loader fills in, then others, to which it adds the address of the code); and zeros that the code may write to.
All distances between them are fixed here.

Sources: the ELF specification, and its supplements for x86-64 and for AArch64.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from tensorgrad.kernels.compiled.runtime import native

_SECTION, _SYMBOL, _RELOCATION = struct.Struct("<IIQQQQIIQQ"), struct.Struct("<IBBHQQ"), struct.Struct("<QQq")
_BITS, _SYMBOLS, _WITH_ADDENDS, _ZEROS = 1, 2, 4, 8  # kinds of sections
_WRITABLE, _LOADED, _PER_THREAD = 1, 2, 0x400  # flags of sections
# Kinds of relocations.
R_X86_64_64, R_X86_64_PC32, R_X86_64_PLT32, R_X86_64_PC64 = 1, 2, 4, 24
R_X86_64_GOTPCREL, R_X86_64_GOTPCRELX, R_X86_64_REX_GOTPCRELX = 9, 41, 42
R_AARCH64_ABS64, R_AARCH64_PREL64, R_AARCH64_PREL32 = 257, 260, 261
R_AARCH64_ADR_PREL_PG_HI21, R_AARCH64_JUMP26, R_AARCH64_CALL26 = 275, 282, 283
R_AARCH64_ADR_GOT_PAGE, R_AARCH64_LD64_GOT_LO12_NC = 311, 312
_LOW_12 = {277: 0, 278: 0, 284: 1, 285: 2, 286: 3, 299: 4}  # ADD and LDST8 to LDST128: the scale of the last 12 bits
_BY_WORD = (R_X86_64_GOTPCREL, R_X86_64_GOTPCRELX, R_X86_64_REX_GOTPCRELX, R_AARCH64_ADR_GOT_PAGE)  # ask for a word
_LINE = 64  # bytes at whose multiples objects begin
PAGES = {"x86_64": 4096, "aarch64": 65536}  # bytes of the largest pages that systems use

_KNOWN = {native.PREFIX + name for name in (*native.PYTHON, *native.OBJECTS, "system")}
_KNOWN |= {*native.C_LIBRARY, *native.IF_THERE}


class Part(NamedTuple):
    """A compiled function: the name of its entry, and its object file."""

    entry: str
    data: bytes


class Linked(NamedTuple):
    """What the loader needs (library.py): `entries` are the places of parts, by their names."""

    code: bytes
    fixed: list[int]
    written: int
    imports: list[str]
    moved: list[int]
    entries: dict[str, int]


class _Section(NamedTuple):
    name: int
    kind: int
    flags: int
    address: int
    offset: int
    length: int
    link: int
    target: int
    alignment: int
    size_of_entries: int


class _Object:
    def __init__(self, part: Part):
        self.data, self.entry = part.data, part.entry
        (table,), (size, count, names) = (
            struct.unpack_from("<Q", self.data, 40),
            struct.unpack_from("<HHH", self.data, 58),
        )
        self.sections = [_Section(*_SECTION.unpack_from(self.data, table + n * size)) for n in range(count)]
        self.names = self.sections[names]
        self.places: dict[int, int] = {}  # of sections

    def text(self, table: _Section, at: int) -> str:
        start = table.offset + at
        return self.data[start : self.data.index(b"\0", start)].decode()

    def of(self, section: _Section) -> bytes:
        return self.data[section.offset : section.offset + section.length] if section.kind != _ZEROS else b""

    def loaded(self, section: _Section) -> bool:
        name = self.text(self.names, section.name)
        return bool(section.flags & _LOADED) and not name.startswith((".eh_frame", ".note"))

    def group(self, section: _Section) -> int:
        """Returns the part that a section belongs to: 0 code, 1 words that hold addresses, 2 what is written."""
        if section.flags & _PER_THREAD:
            raise ValueError(f"{self.entry} has memory of each thread")
        if not section.flags & _WRITABLE:
            return 0
        return 1 if self.text(self.names, section.name).startswith(".data.rel.ro") else 2


def _up(size: int, unit: int) -> int:
    return -(-size // unit) * unit


class _Image:
    """An image under construction. Places are bytes from its beginning."""

    def __init__(self, parts: list[Part], machine: str, carried: bool):
        self.machine, self.page = machine, PAGES[machine]
        self.objects = [_Object(part) for part in parts]
        ends = [0, 0, 0]
        for one in self.objects:
            ends = [_up(end, _LINE) for end in ends]
            for number, section in enumerate(one.sections):
                if one.loaded(section) and section.length:
                    group = one.group(section)
                    if group == 2 and one.of(section).strip(b"\0"):
                        raise ValueError(f"{one.entry} has variables that begin with other values than zero")
                    one.places[number] = _up(ends[group], max(section.alignment, 1))
                    ends[group] = one.places[number] + section.length
        self.imports: list[str] = []
        self.locals: list[int] = []
        stub = 8 if machine == "x86_64" else 12
        self.stub, self.stubs = stub, _up(ends[0], 16)
        named = [self.symbols(one) for one in self.objects]
        self.imports = sorted({name for names in named for name, place in names if name and place is None})
        unknown = set(self.imports) - _KNOWN
        if unknown and carried:
            raise ValueError(f"code that uses {', '.join(sorted(unknown))} cannot be carried")
        self.code_end = self.stubs + stub * len(self.imports)
        self.base_fixed = _up(self.code_end, self.page)
        self.words = [0] * len(self.imports)
        self.moved: list[int] = []
        self.own: dict[int, int] = {}  # words with addresses of the image, by these
        self.first_data = 8 * _up(len(self.imports) + self.count_of_own(), 8)
        self.end_fixed = self.base_fixed + self.first_data + _up(ends[1], 8)
        self.base_written, self.written = _up(self.end_fixed, self.page), ends[2]
        self.code = bytearray(self.code_end)
        self.fixed = bytearray(self.end_fixed - self.base_fixed)
        for one in self.objects:
            for number, place in list(one.places.items()):
                section = one.sections[number]
                group = one.group(section)
                if group == 0:
                    self.code[place : place + section.length] = one.of(section)
                elif group == 1:
                    at = self.first_data + place
                    self.fixed[at : at + section.length] = one.of(section)
                one.places[number] = place + (0, self.base_fixed + self.first_data, self.base_written)[group]

    def count_of_own(self) -> int:
        """Returns how many words for addresses of the image the code asks for at most."""
        return sum(
            info & 0xFFFFFFFF in _BY_WORD
            for one in self.objects
            for section in one.sections
            if section.kind == _WITH_ADDENDS and section.target in one.places
            for _, info, _ in _RELOCATION.iter_unpack(one.of(section))
        )

    def symbols(self, one: _Object) -> list[tuple[str, int | None]]:
        """Returns an object's symbols: their names and their places, None if they are to be imported."""
        [table] = [section for section in one.sections if section.kind == _SYMBOLS]
        found: list[tuple[str, int | None]] = []
        for name, _, _, where, value, _ in _SYMBOL.iter_unpack(one.of(table)):
            text = one.text(one.sections[table.link], name)
            elsewhere = -1 if where else None
            found.append((text, one.places[where] + value if where in one.places else elsewhere))
        return found

    # --- what code refers to ---

    def word_of(self, name: str, place: int | None) -> int:
        """Returns the place of the word that has a symbol's address."""
        if place is None:
            return self.base_fixed + 8 * self.imports.index(name)
        if place not in self.own:
            self.own[place] = len(self.imports) + len(self.own)
            at = 8 * self.own[place]
            self.fixed[at : at + 8] = struct.pack("<q", place)
            self.moved.append(at // 8)
        return self.base_fixed + 8 * self.own[place]

    def called(self, name: str, place: int | None) -> int:
        """Returns the place to call for a symbol: for what is imported, code that jumps there."""
        return self.stubs + self.stub * self.imports.index(name) if place is None else place

    def write_stubs(self) -> None:
        for n in range(len(self.imports)):
            at, word = self.stubs + self.stub * n, self.base_fixed + 8 * n
            if self.machine == "x86_64":  # jmp *distance(%rip)
                self.code[at : at + 8] = b"\xff\x25" + struct.pack("<i", word - at - 6) + b"\xcc\xcc"
            else:  # adrp x16, page; ldr x16, [x16, place]; br x16
                pages = (word >> 12) - (at >> 12)
                adrp = 0x90000010 | (pages & 3) << 29 | (pages >> 2 & 0x7FFFF) << 5
                load = 0xF9400210 | (word & 0xFFF) >> 3 << 10
                self.code[at : at + 12] = struct.pack("<III", adrp, load, 0xD61F0200)

    def relocate(self) -> None:
        self.write_stubs()
        for one in self.objects:
            symbols = self.symbols(one)
            for section in one.sections:
                if section.target in one.places and section.kind == _WITH_ADDENDS:
                    for offset, info, addend in _RELOCATION.iter_unpack(one.of(section)):
                        name, place = symbols[info >> 32]
                        if place == -1:
                            raise ValueError(f"{one.entry} refers to {name}, which is nowhere")
                        at = one.places[section.target] + offset
                        in_code = at < self.code_end
                        memory, start = (self.code, 0) if in_code else (self.fixed, self.base_fixed)
                        kind = info & 0xFFFFFFFF
                        fill = self.fill_x86 if self.machine == "x86_64" else self.fill_arm
                        fill(memory, at - start, at, kind, name, place, addend)

    def absolute(self, memory: bytearray, here: int, name: str, place: int | None, addend: int) -> None:
        """A word with an address: only among those that the loader fills in."""
        if place is None or memory is not self.fixed or here % 8:
            raise ValueError(f"a word in the code has the address of {name or place}")
        struct.pack_into("<q", memory, here, place + addend)
        self.moved.append(here // 8)

    def fill_x86(self, memory, here, at, kind, name, place, addend) -> None:
        if kind == R_X86_64_64:
            self.absolute(memory, here, name, place, addend)
        elif kind in (R_X86_64_PC32, R_X86_64_PLT32):  # a distance, to data of the image or to what is called
            struct.pack_into("<i", memory, here, self.called(name, place) + addend - at)
        elif kind in _BY_WORD:  # the distance of a word that has the address
            struct.pack_into("<i", memory, here, self.word_of(name, place) + addend - at)
        elif kind == R_X86_64_PC64 and place is not None:
            struct.pack_into("<q", memory, here, place + addend - at)
        else:
            raise ValueError(f"a relocation of kind {kind} to {name}")

    def fill_arm(self, memory, here, at, kind, name, place, addend) -> None:
        def put(mask: int, bits: int) -> None:
            (word,) = struct.unpack_from("<I", memory, here)
            struct.pack_into("<I", memory, here, word & ~mask | bits & mask)

        def pages(to: int) -> None:
            away = (to >> 12) - (at >> 12)
            put(0x60FFFFE0, (away & 3) << 29 | (away >> 2 & 0x7FFFF) << 5)

        if kind == R_AARCH64_ABS64:
            self.absolute(memory, here, name, place, addend)
        elif kind in (R_AARCH64_JUMP26, R_AARCH64_CALL26):
            away = self.called(name, place) + addend - at
            if not -(1 << 27) <= away < 1 << 27:
                raise ValueError(f"{name} is too far away")
            put(0x3FFFFFF, away >> 2)
        elif kind == R_AARCH64_ADR_GOT_PAGE:
            pages(self.word_of(name, place))
        elif kind == R_AARCH64_LD64_GOT_LO12_NC:
            put(0xFFF << 10, (self.word_of(name, place) & 0xFFF) >> 3 << 10)
        elif place is None:
            raise ValueError(f"a relocation of kind {kind} to {name}, which is imported")
        elif kind == R_AARCH64_ADR_PREL_PG_HI21:
            pages(place + addend)
        elif kind in _LOW_12:
            put(0xFFF << 10, (place + addend & 0xFFF) >> _LOW_12[kind] << 10)
        elif kind == R_AARCH64_PREL32:
            struct.pack_into("<i", memory, here, place + addend - at)
        elif kind == R_AARCH64_PREL64:
            struct.pack_into("<q", memory, here, place + addend - at)
        else:
            raise ValueError(f"a relocation of kind {kind} to {name}")


def link(parts: dict[str, Part], machine: str, carried: bool = True) -> Linked:
    """Links compiled functions, given by their names, to one image.

    Raises: ValueError if it is to be carried, and imports what the package's loader does not know.
    """
    image = _Image(list(parts.values()), machine, carried)
    image.relocate()
    entries = {}
    for name, one in zip(parts, image.objects, strict=True):
        [place] = [place for text, place in image.symbols(one) if text == one.entry and place not in (None, -1)]
        entries[name] = int(place or 0)
    words = list(struct.unpack(f"<{len(image.fixed) // 8}q", bytes(image.fixed)))
    return Linked(bytes(image.code), words, image.written, image.imports, sorted(image.moved), entries)
