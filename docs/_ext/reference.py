"""The directive that writes the API reference: ``{reference} nn.functional`` lists a namespace's public names.

Names and docstrings come from the package itself; nothing is written twice. The docstrings are plain text with `code`
in backquotes, labeled lists (Args, Raises) and examples, so they are turned into nodes directly: that takes seconds for
two thousand names, and no character in a formula can be mistaken for markup.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pages
import sources
from docutils import nodes
from docutils.parsers.rst import directives
from public_names import family, first_names, full_name, known, public
from sphinx import addnodes
from sphinx.util.docutils import SphinxDirective

import tensorgrad

# --- docstrings ------------------------------------------------------------------------------------------------------

_SIGNATURE = re.compile(r"\w+\(.*\)( -> .*)?")
_LABEL = re.compile(r"(Args|Raises|Returns|Attributes|Yields):$")
# Emphasis is words directly enclosed in stars, as in titles; the stars in a shape (*, n) or in 2**63 stay stars.
_INLINE = re.compile(
    r":\w+:`~?(?P<role>[^`]+)`|``(?P<double>[^`]+)``|`(?P<single>[^`]+)`"
    r"|(?<!\S)\*(?P<strong>[A-Za-z](?:[^*()]*\w)?)\*(?!\w)"
)


def docstring_of(value) -> str:
    """The docstring, without the signature that rows put on its first line."""
    text = inspect.cleandoc((value.__dict__.get("__doc__") if isinstance(value, type) else value.__doc__) or "")
    first, _, rest = text.partition("\n")
    return rest.strip() if _SIGNATURE.fullmatch(first) else text


def typed(value) -> str:
    """The parameters with their types, and what is returned; "" where a signature has neither names nor types."""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    parameters = [p for p in signature.parameters.values() if p.name not in ("self", "cls")]
    kinds = {p.kind for p in parameters}
    if {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD} <= kinds or not any(
        p.annotation is not p.empty for p in parameters
    ):
        return ""
    shown = [p.replace(annotation=_Shown(_type(p.annotation)) if _type(p.annotation) else p.empty) for p in parameters]
    returned = "" if isinstance(value, type) else _type(signature.return_annotation)
    text = str(signature.replace(parameters=shown, return_annotation=signature.empty))
    text = re.sub(r"<module '([\w.]+)' [^>]*>", r"\1", text)
    return f"{text} → {returned}" if returned else text


class _Shown:
    """Stands for a type or a value, and is printed as given."""

    def __init__(self, text: str):
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _type(annotation) -> str:
    """An annotation as people read it; "" if it says nothing."""
    if annotation is inspect.Signature.empty:
        return ""
    annotation = getattr(annotation, "__forward_arg__", annotation)
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", None) or str(annotation)
    text = re.sub(r"\b(?:tensorgrad|typing|collections\.abc)\.(?:\w+\.)*", "", text)
    return "" if text == "Any" else text


def signature_of(value) -> str:
    """The parameters of a function or class in parentheses, with their types where the source has them."""
    if isinstance(value, property):
        return ""
    if found := typed(value):
        return found
    first = (getattr(value, "__doc__", None) or "").strip().partition("\n")[0]
    if not isinstance(value, type) and _SIGNATURE.fullmatch(first):
        return first.partition("(")[1] + first.partition("(")[2]
    try:
        signature = inspect.signature(inspect.unwrap(value))
    except (TypeError, ValueError):
        return "(…)"
    parameters = [p.replace(annotation=p.empty) for p in signature.parameters.values() if p.name not in ("self", "cls")]
    return str(signature.replace(parameters=parameters, return_annotation=signature.empty))


def blocks(text: str) -> Iterator[tuple[str, str]]:
    """A docstring as ("text" | "example" | "list", content)."""
    for block in re.split(r"\n\s*\n", text):
        lines = inspect.cleandoc(block).splitlines()
        if not lines:
            continue
        while lines:
            if lines[0].lstrip().startswith(">>>"):
                yield "example", "\n".join(inspect.cleandoc("\n".join(lines)).splitlines())
                break
            end = next((i for i, line in enumerate(lines) if line.lstrip().startswith(">>>")), len(lines))
            part, lines = lines[:end], lines[end:]
            label = next((i for i, line in enumerate(part) if _LABEL.match(line.strip())), None)
            if label is None:
                yield "text", "\n".join(part)
                continue
            if label:
                yield "text", "\n".join(part[:label])
            yield "list", "\n".join(part[label:])


def inline(text: str, namespace: str = "") -> list[nodes.Node]:
    """The nodes of a sentence with `code` and *emphasis*; names are looked up in `namespace` first."""
    made, at = [], 0
    for match in _INLINE.finditer(text):
        made.append(nodes.Text(text[at : match.start()]))
        strong = match["strong"]
        code = match["role"] or match["double"] or match["single"]
        made.append(nodes.emphasis(text=strong) if strong else reference_to(code, namespace))
        at = match.end()
    return [*made, nodes.Text(text[at:])]


def reference_to(code: str, namespace: str) -> nodes.Node:
    """A node for code: a link if it names something in the reference."""
    literal = nodes.literal(text=code)
    name = code.removeprefix("tensorgrad.").removesuffix("()")
    candidates = (name, full_name("", name) if "." in name else "", full_name(namespace, name) if namespace else "")
    target = next((c for c in candidates if c in known()), None)
    if target is None:
        return literal
    return addnodes.pending_xref("", literal, refdomain="py", reftype="obj", reftarget=target, refexplicit=False)


def described(text: str, namespace: str) -> list[nodes.Node]:
    """The nodes of a docstring."""
    made: list[nodes.Node] = []
    for kind, content in blocks(text):
        if kind == "example":
            made.append(nodes.literal_block(content, content, language="pycon"))
        elif kind == "text":
            made.append(nodes.paragraph("", "", *inline(content, namespace)))
        else:
            made += labelled(content, namespace)
    return made


def labelled(content: str, namespace: str) -> list[nodes.Node]:
    """The nodes of a labeled list (`Args:` and the like): a small heading and a bullet list."""
    title, *lines = content.splitlines()
    items: list[list[str]] = []
    for line in inspect.cleandoc("\n".join(lines)).splitlines():
        if items and line.startswith(" "):
            items[-1].append(line.strip())
        else:
            items.append([line])
    entries = []
    for item in items:
        name, colon, meaning = " ".join(item).partition(": ")
        is_name = bool(colon) and "`" not in name
        words = [nodes.literal(text=name), nodes.Text(" – ")] if is_name else []
        words += inline(meaning if is_name else " ".join(item), namespace)
        entries.append(nodes.list_item("", nodes.paragraph("", "", *words)))
    heading = nodes.paragraph("", "", nodes.strong(text=title.strip().rstrip(":")), classes=["label"])
    return [heading, nodes.bullet_list("", *entries)]


# --- the directive ---------------------------------------------------------------------------------------------------


class Reference(SphinxDirective):
    """Lists the public names of a namespace with their signatures and docstrings, and the members of classes."""

    optional_arguments = 1
    has_content = False
    option_spec = {"except": directives.unchanged, "by-family": directives.flag}  # noqa: RUF012

    def run(self) -> list[nodes.Node]:
        """Returns one description per name, grouped into sections with `:by-family:`."""
        namespace = self.arguments[0] if self.arguments else ""
        self.namespace, self.prefix = namespace, f"torch.{namespace}." if namespace else "torch."
        names = public(namespace)
        if "by-family" not in self.options:
            return [node for name, value in names.items() for node in self.one(name, value)]
        sections: dict[tuple[str, str], list] = {}
        for name, value in names.items():
            sections.setdefault(family(namespace, name, value), []).extend(self.one(name, value))
        order = sorted(sections, key=lambda about: (about[0] == "Others", about))
        return [self.section(*about, sections[about]) for about in order]

    def section(self, title: str, about: str, entries: list[nodes.Node]) -> nodes.section:
        """A section with a heading and a sentence about its contents."""
        opening = [nodes.paragraph("", "", *inline(about))] if about else []
        section = nodes.section("", nodes.title(text=title), *opening, *entries)
        section["names"] = [nodes.fully_normalize_name(title)]
        self.state.document.note_implicit_target(section, section)
        return section

    def one(self, name: str, value) -> list[nodes.Node]:
        """The entry of one name. In-place forms, methods that are also functions, and aliases only refer to another."""
        kind = "class" if isinstance(value, type) else "attribute" if isinstance(value, property) else "function"
        entry = self.entry(self.prefix + name, kind, name, self.parameters(name, value), sources.place_of(name, value))
        same = self.same_as(name, value)
        if same:
            entry["classes"].append("brief")
        content = [nodes.paragraph("", "", *same)] if same else described(docstring_of(value), self.namespace)
        if isinstance(value, type) and value is not tensorgrad.Tensor and not same:
            content += [self.member(f"{self.prefix}{name}", n, v) for n, v in members(value)]
        entry += addnodes.desc_content("", *content)
        if same:
            return [entry]
        first = docstring_of(value).partition("\n\n")[0].replace("\n", " ").replace("`", "")
        sentence = re.match(r".*?[.:](?=\s|$)|.*", first)[0]  # type: ignore[index]
        marks = pages.begin(self.prefix + name, sentence), pages.END
        return [nodes.raw("", marks[0], format="html"), entry, nodes.raw("", marks[1], format="html")]

    def parameters(self, name: str, value) -> str:
        """The parameters: for in-place forms those of the op, for methods without the tensor itself."""
        shown = signature_of(value)
        if (
            re.search(r"\*args(: \w+)?, \*\*kwargs", shown)
            and name.endswith("_")
            and name[:-1] in public(self.namespace)
        ):
            shown = re.sub(r"(, \*)?, out=None", "", signature_of(public(self.namespace)[name[:-1]]))
        if self.namespace == "Tensor":
            shown = re.sub(r"^\((input|self)(: Tensor)?(, |(?=\)))", "(", shown)
        return shown

    def same_as(self, name: str, value) -> list[nodes.Node]:
        if (first := first_names().get(id(value), "")) != self.prefix + name:
            return inline(f"The same as `{first}`.")
        if self.namespace == "Tensor" and docstring_of(public("").get(name)) == docstring_of(value):
            return inline(f"See `torch.{name}`; this tensor is its first argument.")
        if name[:-1] in public(self.namespace) and docstring_of(value).startswith("In-place version of"):
            return inline(f"In-place version of `{self.prefix}{name[:-1]}`.")
        return []

    def member(self, owner: str, name: str, value) -> nodes.Node:
        """A method or property of a class."""
        kind = "property" if isinstance(value, property) else "method"
        shown = signature_of(getattr(value, "__func__", value))
        entry = self.entry(f"{owner}.{name}", kind, name, shown, sources.place_of(name, value))
        entry += addnodes.desc_content("", *described(docstring_of(getattr(value, "__func__", value)), self.namespace))
        return entry

    def entry(
        self, full: str, kind: str, name: str, parameters: str, place: tuple[Path, int] | None = None
    ) -> addnodes.desc:
        """The heading of one name, registered for search and links."""
        signature = addnodes.desc_signature("", ids=[full], first=False, classes=["sig"], module="", fullname=full)
        signature += addnodes.desc_addname(text=full.removesuffix(name))
        signature += addnodes.desc_name(text=name)
        signature += nodes.inline(text=parameters, classes=["sig-parameters"])
        if place is not None:
            address = f"{'../' * self.env.docname.count('/')}{sources.page_of(place[0])}#L-{place[1]}"
            link = f' <a class="source" href="{address}" title="{place[0].name}, line {place[1]}">source</a>'
            signature += nodes.raw("", link, format="html")
        if kind == "class":
            signature.insert(0, addnodes.desc_annotation(text="class "))
        self.env.get_domain("py").note_object(full, kind, full, location=signature)
        self.state.document.note_explicit_target(signature)
        return addnodes.desc("", signature, domain="py", objtype=kind, desctype=kind, no_index=False, classes=["py"])


def members(cls: type) -> list[tuple[str, Any]]:
    """The public methods and properties that a class itself defines and documents."""
    found = []
    for name, value in sorted(vars(cls).items()):
        is_member = inspect.isfunction(value) or isinstance(value, property | classmethod | staticmethod)
        if not name.startswith("_") and is_member and getattr(value, "__doc__", None):
            found.append((name, value))
    return found


def setup(app) -> dict:
    """Called by Sphinx: registers the directive."""
    app.add_directive("reference", Reference)
    return {"parallel_read_safe": True, "version": "1"}
