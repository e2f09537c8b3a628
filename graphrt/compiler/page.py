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
_LEGEND = (("feed", "fed or fetched"), ("compute", "computes"), ("state", "variable"), ("effect",
                                                                                        "reads or writes "
                                                                                        "state"), ("flow",
                                                                                                   "Switch "
                                                                                                   "or Merge"))


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
    keys = [f'<span><svg class="step" width="22" height="14"><g class="box {kind}"><rect x="1" y="1" '
            'width="20" height="12" rx="4"/>'
            f"</g></svg>{escape(what)}</span>" for kind, what in _LEGEND]
    for kind, what in (("data", "tensor"), ("control", "control edge"), ("data cut", "crosses devices")):
        keys.append(f'<span><svg class="step" width="26" height="10"><path class="link {kind}" d="M1 5 L25 '
                    f'5"/></svg>{what}</span>')
    return f'<div class="legend">{"".join(keys)}</div>'


def _edges(explanation: Explanation) -> str:
    from graphrt.compiler.explanation import size_text
    if not explanation.cut_edges:
        return "<p>Nothing crosses: the step runs in one partition.</p>"
    rows = []
    for number, edge in enumerate(explanation.cut_edges, 1):
        kind = "control edge" if edge.output is None else f"{edge.dtype.name} {edge.shape}"
        size = "0 B" if edge.output is None else size_text(edge)
        rows.append(f'<tr id="edge-{number}"><td '
                    f'class="number">{number}</td><td><code>{escape(edge.tensor)}</code></td><td>{escape(kind)}</td><td class="number">{size}</td><td><code>{escape(edge.from_device)}</code><br>'
                    f"<code>{escape(edge.to_device)}</code></td><td>{_names(edge.takers)}</td><td><code>{escape(edge.key)}</code></td></tr>")
    return _table(("", "Tensor", "Type", "Size", "From, to", "For", "Rendezvous key"), rows, numeric=(0, 3))


def _passes(explanation: Explanation) -> str:
    rows = []
    for record in explanation.records:
        changed = record.nodes_before != record.nodes_after
        nodes = f"{record.nodes_before:,} \N{RIGHTWARDS ARROW} {record.nodes_after:,}" if changed else f"{record.nodes_after:,}"
        details = [] if record.name == "place" else [f"<code>{escape(name)}</code>: {escape(what)}"
                                                     for name, what in record.details[:_MOST_LINES]]
        rows.append(f'<tr><td><code>{escape(record.name)}</code></td><td class="number">{nodes}</td>'
                    f'<td class="number">{record.seconds * 1e3:.2f}</td><td>{escape(record.summary)}'
                    f"{_list(details, len(record.details)) if details else ''}</td></tr>")
    return _table(("Pass", "Nodes", "ms", "What it did"), rows, numeric=(1, 2))


def _placement(explanation: Explanation) -> str:
    rows = []
    for device, rules in explanation.placement().items():
        for rule, names in rules.items():
            shown = [f"<code>{escape(name)}</code>" for name in names[:_MOST_LINES]]
            rows.append(f'<tr><td><code>{escape(device)}</code></td><td '
                        f'class="number">{len(names):,}</td><td>{escape(rule)}'
                        f"{_list(shown, len(names))}</td></tr>")
    return _table(("Device", "Nodes", "Rule"), rows, numeric=(1,))


def _table(heads: Iterable[str], rows: list[str], numeric: tuple[int, ...] = ()) -> str:
    head = "".join(f'<th class="number">{h}</th>' if i in numeric else f"<th>{h}</th>" for i, h
                   in enumerate(heads))
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


def _list(items: list[str], total: int) -> str:
    more = f"<li>and {total - len(items):,} more</li>" if total > len(items) else ""
    lines = "".join(f"<li>{item}</li>" for item in items)
    return f"<details><summary>{total:,} {'line' if total == 1 else 'lines'}</summary><ul>{lines}{more}</ul></details>"


def _names(names: tuple[str, ...]) -> str:
    shown = ", ".join(f"<code>{escape(name)}</code>" for name in names[:8])
    return shown + (f" and {len(names) - 8} more" if len(names) > 8 else "")
