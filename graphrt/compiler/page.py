"""The page around the picture: what each pass did, where nodes are and why, what crosses. One file, no other
resource."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graphrt.compiler.explanation import Explanation

_STYLE = Path(__file__).with_name("page.css")
# Lines that a list on the page holds: a graph of 36,000 nodes stays a page.
_MOST_LINES = 400
_LEGEND = (("feed", "fed or fetched"), ("compute", "computes"), ("state", "variable"),
           ("effect", "reads or writes state"), ("flow", "Switch or Merge"))


def page(explanation: Explanation, title: str | None) -> str:
    """The whole page."""
    from graphrt.compiler.picture import draw
    heading = title or explanation.title
    return "\n".join(["<!DOCTYPE html>", '<html lang="en">', "<head>", '<meta charset="utf-8">',
                      '<meta name="viewport" content="width=device-width, initial-scale=1">',
                      f"<title>{escape(heading)}</title>", f"<style>{_STYLE.read_text()}</style>", "</head>",
                      "<body>", f"<h1>{escape(heading)}</h1>", f"<p>{escape(explanation.summary())}.</p>",
                      f'<div class="picture">{draw(explanation)}</div>', _legend(), "<h2>Cut edges</h2>",
                      _edges(explanation), "<h2>Passes</h2>", _passes(explanation), "<h2>Placement</h2>",
                      _placement(explanation), "</body>", "</html>", ""])


def _legend() -> str:
    keys = [f'<span><svg class="step" width="22" height="14"><g class="box {kind}">'
            f'<rect x="1" y="1" width="20" height="12" rx="4"/></g></svg>{escape(what)}</span>'
            for kind, what in _LEGEND]
    for kind, what in (("data", "tensor"), ("control", "control edge"), ("data cut", "crosses devices")):
        keys.append('<span><svg class="step" width="26" height="10">'
                    f'<path class="link {kind}" d="M1 5 L25 5"/></svg>{what}</span>')
    return f'<div class="legend">{"".join(keys)}</div>'


def _edges(explanation: Explanation) -> str:
    from graphrt.compiler.explanation import size_text
    if not explanation.cut_edges:
        return "<p>Nothing crosses: the step runs in one partition.</p>"
    rows = []
    for number, edge in enumerate(explanation.cut_edges, 1):
        kind = "control edge" if edge.output is None else f"{edge.dtype.name} {edge.shape}"
        size = "0 B" if edge.output is None else size_text(edge)
        devices = f"{_code(edge.from_device)}<br>{_code(edge.to_device)}"
        rows.append(_row((str(number), _code(edge.tensor), escape(kind), size, devices, _names(edge.takers),
                          _code(edge.key)), numeric=(0, 3), identity=f"edge-{number}"))
    return _table(("", "Tensor", "Type", "Size", "From, to", "For", "Rendezvous key"), rows, numeric=(0, 3))


def _passes(explanation: Explanation) -> str:
    rows = []
    for record in explanation.records:
        nodes = f"{record.nodes_after:,}"
        if record.nodes_before != record.nodes_after:
            nodes = f"{record.nodes_before:,} \N{RIGHTWARDS ARROW} {nodes}"
        details = [f"{_code(name)}: {escape(what)}" for name, what in record.details[:_MOST_LINES]]
        # Where each node was placed has a table of its own.
        more = _list(details, len(record.details)) if details and record.name != "place" else ""
        rows.append(_row((_code(record.name), nodes, f"{record.seconds * 1e3:.2f}",
                          escape(record.summary) + more), numeric=(1, 2)))
    return _table(("Pass", "Nodes", "ms", "What it did"), rows, numeric=(1, 2))


def _placement(explanation: Explanation) -> str:
    rows = []
    for device, rules in explanation.placement().items():
        for rule, names in rules.items():
            listed = _list([_code(name) for name in names[:_MOST_LINES]], len(names))
            rows.append(_row((_code(device), f"{len(names):,}", escape(rule) + listed), numeric=(1,)))
    return _table(("Device", "Nodes", "Rule"), rows, numeric=(1,))


def _table(heads: Iterable[str], rows: list[str], numeric: tuple[int, ...] = ()) -> str:
    head = "".join(f'<th class="number">{h}</th>' if i in numeric else f"<th>{h}</th>"
                   for i, h in enumerate(heads))
    return (f'<div class="wide"><table><thead><tr>{head}</tr></thead>'
            f'<tbody>{"".join(rows)}</tbody></table></div>')


def _row(cells: Iterable[str], numeric: tuple[int, ...], identity: str = "") -> str:
    made = "".join(f'<td class="number">{cell}</td>' if i in numeric else f"<td>{cell}</td>"
                   for i, cell in enumerate(cells))
    return f'<tr id="{identity}">{made}</tr>' if identity else f"<tr>{made}</tr>"


def _code(text: str) -> str:
    return f"<code>{escape(text)}</code>"


def _list(items: list[str], total: int) -> str:
    more = f"<li>and {total - len(items):,} more</li>" if total > len(items) else ""
    lines = "".join(f"<li>{item}</li>" for item in items)
    head = f"{total:,} {'line' if total == 1 else 'lines'}"
    return f"<details><summary>{head}</summary><ul>{lines}{more}</ul></details>"


def _names(names: tuple[str, ...]) -> str:
    shown = ", ".join(_code(name) for name in names[:8])
    return shown + (f" and {len(names) - 8} more" if len(names) > 8 else "")
