"""The picture of a compiled step as SVG: a lane a device, boxes from left to right, edges that cross drawn
heavily.

It needs nothing beside itself, follows the reader's light or dark theme, and is the same for the same step.
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from graphrt.compiler.layout import BOX_HEIGHT, MARGIN, Placed, lay_out
from graphrt.compiler.picture_model import Box, Link, Model, model_of
from graphrt.core import device_names

if TYPE_CHECKING:
    from graphrt.compiler.explanation import CutEdge, Explanation

_TITLE_CHAR, _SUBTITLE_CHAR = 6.6, 5.6
_MOST_CHARS = 26
_PILL_HEIGHT = 15.0
STYLE = Path(__file__).with_name("picture.css")


def draw(explanation: Explanation) -> str:
    """The SVG of a step."""
    rules: dict[str, str] = {}
    for record in explanation.records:
        if record.name == "place":
            rules = {name: text.partition(": ")[2] for name, text in record.details}
    model = model_of(explanation.compiled.step, rules)
    widths = [_width(box) for box in model.boxes]
    placed = lay_out(model, widths)
    width, height = placed.size
    parts = ['<svg xmlns="http://www.w3.org/2000/svg" class="step" role="img" '
             f'aria-label="{escape(explanation.title)}" viewBox="0 0 {width:.0f} {height:.0f}" '
             f'width="{width:.0f}" height="{height:.0f}">',
             f"<style>{STYLE.read_text()}</style>",
             '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" '
             'orient="auto"><path d="M0 1 L7 4 L0 7 z"/></marker></defs>']
    parts += _lanes(model, placed)
    parts += _links(model, placed, explanation.cut_edges)
    parts += [_box_svg(box, placed.x[i], placed.y[i], widths[i]) for i, box in enumerate(model.boxes)]
    parts += _pills(model, placed, explanation.cut_edges)
    parts.append("</svg>")
    return "\n".join(parts)


def _lanes(model: Model, placed: Placed) -> list[str]:
    counts: dict[str, int] = {}
    for box in model.boxes:
        counts[box.lane] = counts.get(box.lane, 0) + len(box.members)
    made = []
    for lane, top, height in placed.lanes:
        made.append(f'<g class="lane"><rect x="{MARGIN:.1f}" y="{top:.1f}" '
                    f'width="{placed.size[0] - 2 * MARGIN:.1f}" height="{height:.1f}" rx="10"/><text '
                    f'x="{MARGIN + 14:.1f}" y="{top + 20:.1f}">{escape(short_device(lane))}<tspan '
                    f'class="count" dx="10">{counts[lane]:,} nodes</tspan></text></g>')
    return made


def short_device(name: str) -> str:
    """'ps/0 CPU:0' of a full device name; without the task where it is this process's own."""
    parts = device_names.parse(name)
    local = f"{parts.type}:{parts.index}" if parts.type else ""
    if parts.job in (None, "localhost"):
        return local or name
    return f"{parts.job}/{parts.task} {local}".strip()


# -- boxes -------------------------------------------------------------------------------------------------


def _clipped(text: str, most: int = _MOST_CHARS) -> str:
    """The text, its middle left out where it is long: names differ at their ends."""
    if len(text) <= most:
        return text
    tail = most // 2 + 2
    return text[:most - tail - 1] + "\N{HORIZONTAL ELLIPSIS}" + text[-tail:]


def _width(box: Box) -> float:
    title, subtitle = _clipped(box.title), _clipped(box.subtitle, 30)
    return max(len(title) * _TITLE_CHAR, len(subtitle) * _SUBTITLE_CHAR, 44.0) + 18.0


def _box_svg(box: Box, x: float, y: float, width: float) -> str:
    middle = x + width / 2
    stack = (f'<rect class="behind" x="{x + 4:.1f}" y="{y + 4:.1f}" width="{width:.1f}" '
             f'height="{BOX_HEIGHT:.1f}" rx="6"/>' if box.kind == "scope" else "")
    return (f'<g class="box {box.kind}"><title>{escape(chr(10).join(box.notes))}</title>{stack}<rect '
            f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{BOX_HEIGHT:.1f}" rx="6"/><text '
            f'class="name" x="{middle:.1f}" y="{y + 15.5:.1f}">{escape(_clipped(box.title))}</text><text '
            f'class="type" x="{middle:.1f}" '
            f'y="{y + 28.5:.1f}">{escape(_clipped(box.subtitle, 30))}</text></g>')


# -- links -------------------------------------------------------------------------------------------------


def _links(model: Model, placed: Placed, edges: list[CutEdge]) -> list[str]:
    drawn: dict[str, str] = {}
    for link, route in zip(model.links, placed.routes):
        path = _path(link, route, placed)
        classes = f"link {link.kind}" + (" cut" if link.is_cut else "")
        title = escape("\n".join(link.tensors[:12]) + ("\n..." if len(link.tensors) > 12 else ""))
        # Links of one box that share their way are drawn where they part.
        drawn[path] = (f'<path class="{classes}" d="{path}" marker-end="url(#tip)"><title>{title}</title>'
                       "</path>")
    # Cut edges lie on top.
    return sorted(drawn.values(), key=lambda text: " cut" in text[:40])


def _path(link: Link, route: list[tuple[float, float, float]], placed: Placed) -> str:
    x, y = placed.x[link.source] + placed.width[link.source], placed.y[link.source] + BOX_HEIGHT / 2
    end_x, end_y = placed.x[link.target] - 1.5, placed.y[link.target] + BOX_HEIGHT / 2
    text = f"M{x:.1f} {y:.1f}"
    if end_x <= x and not route:
        # Back to an earlier column: out on the right, below both, in from the left.
        low = max(y, end_y) + BOX_HEIGHT
        return text + (f" C{x + 36:.1f} {y:.1f} {x + 36:.1f} {low:.1f} {(x + end_x) / 2:.1f} {low:.1f}"
                       f" S{end_x - 36:.1f} {end_y:.1f} {end_x:.1f} {end_y:.1f}")
    for left, right, at in route:
        text += _curve(x, y, left, at) + f" L{right:.1f} {at:.1f}"
        x, y = right, at
    return text + _curve(x, y, end_x, end_y)


def _curve(x: float, y: float, to_x: float, to_y: float) -> str:
    if abs(to_y - y) < 0.5:
        return f" L{to_x:.1f} {to_y:.1f}"
    bend = max((to_x - x) / 2, 8.0)
    return f" C{x + bend:.1f} {y:.1f} {to_x - bend:.1f} {to_y:.1f} {to_x:.1f} {to_y:.1f}"


def _pills(model: Model, placed: Placed, edges: list[CutEdge]) -> list[str]:
    """A label on each cut edge: its number in the table of cut edges, and the bytes."""
    from graphrt.compiler.explanation import described, size_text
    by_tensor: dict[tuple[str, str], int] = {}
    for number, edge in enumerate(edges, 1):
        by_tensor.setdefault((edge.tensor, edge.to_device), number)
        by_tensor.setdefault((f"^{edge.source}", edge.to_device), number)
    taken: list[tuple[float, float, float]] = []
    labelled: set[int] = set()
    made: list[str] = []
    for link, route in zip(model.links, placed.routes):
        if not link.is_cut:
            continue
        found = [by_tensor.get((t, model.boxes[link.target].lane)) for t in link.tensors]
        numbers = [n for n in dict.fromkeys(found) if n is not None and n not in labelled]
        if not numbers:
            continue
        labelled.update(numbers)
        edge = edges[numbers[0] - 1]
        size = "control" if edge.output is None else size_text(edge)
        text = f"{numbers[0]}  {size}"
        if len(numbers) > 1:
            text = f"{numbers[0]}\N{HORIZONTAL ELLIPSIS}{numbers[-1]}"
        x = placed.x[link.source] + placed.width[link.source]
        y = placed.y[link.source] + BOX_HEIGHT / 2
        to_x, to_y = placed.x[link.target], placed.y[link.target] + BOX_HEIGHT / 2
        if route:
            to_x, _, to_y = route[0]
        width = len(text) * 5.6 + 10
        made.append(_pill((x + to_x) / 2, (y + to_y) / 2, width, text, taken, numbers[0],
                          "\n".join(f"{n}: {edges[n - 1].tensor}, {described(edges[n - 1])}"
                                    for n in numbers[:12])))
    return made


def _pill(x: float, y: float, width: float, text: str, taken: list[tuple[float, float, float]], number: int,
          title: str) -> str:
    step = 0
    at = y
    while any(abs(x - other_x) < (width + other_width) / 2 + 2 and abs(at - other_y) < _PILL_HEIGHT + 2
              for other_x, other_y, other_width in taken):
        step += 1
        at = y + (_PILL_HEIGHT + 3) * ((step + 1) // 2) * (1 if step % 2 else -1)
    taken.append((x, at, width))
    return (f'<a class="pill" href="#edge-{number}"><title>{escape(title)}</title><rect '
            f'x="{x - width / 2:.1f}" y="{at - _PILL_HEIGHT / 2:.1f}" width="{width:.1f}" '
            f'height="{_PILL_HEIGHT:.1f}" rx="{_PILL_HEIGHT / 2:.1f}"/><text x="{x:.1f}" '
            f'y="{at + 3.5:.1f}">{escape(text)}</text></a>')
