"""Layered layout: boxes in columns from left to right, in lanes from top to bottom. The same model always
looks the same.

Columns come from the longest path to a box; within a lane the boxes of a column are ordered by the mean of
their neighbours' places and then moved as near to their neighbours as the order allows. A link that passes
columns goes through points of its own there, so it runs between boxes; links of one box share them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from graphrt.compiler.picture_model import Model

BOX_HEIGHT = 36.0
BOX_GAP = 12.0
COLUMN_GAP = 54.0
LANE_GAP = 26.0
LANE_HEAD = 30.0
LANE_PADDING = 14.0
MARGIN = 12.0
# Beyond this many points for long links these go straight.
_MOST_POINTS = 6000
_SWEEPS = 8


@dataclass
class Placed:
    """Where everything is.

    Attributes:
      x, y: the top left corner of each box; width: of each.
      routes: for each link the points that it runs through between its ends.
      lanes: (name, top, height) of each lane.
      size: (width, height) of the picture.
    """

    x: list[float]
    y: list[float]
    width: list[float]
    routes: list[list[tuple[float, float, float]]] = field(default_factory=list)
    lanes: list[tuple[str, float, float]] = field(default_factory=list)
    size: tuple[float, float] = (0.0, 0.0)


class _Item:
    """A box, or a point of a long link, in a column of a lane."""

    __slots__ = ("box", "column", "lane", "height", "gap", "before", "after", "place", "y")

    def __init__(self, box: int | None, column: int, lane: int) -> None:
        self.box, self.column, self.lane = box, column, lane
        self.height = BOX_HEIGHT if box is not None else 4.0
        self.gap = BOX_GAP if box is not None else 5.0
        self.before: list[_Item] = []
        self.after: list[_Item] = []
        self.place = self.y = 0.0


def lay_out(model: Model, widths: list[float]) -> Placed:
    """Coordinates for a model whose boxes have these widths."""
    columns = _columns(model)
    lane_of = {lane: i for i, lane in enumerate(model.lanes)}
    items = [_Item(i, columns[i], lane_of[box.lane]) for i, box in enumerate(model.boxes)]
    routes = _add_points(model, columns, items, lane_of)
    grid = _grid(items)
    _order(grid)
    tops = _settle(grid, len(model.lanes))
    x_of_column, total_width = _column_places(model, columns, widths)
    placed = Placed([0.0] * len(model.boxes), [0.0] * len(model.boxes), widths)
    for item in items:
        if item.box is not None:
            left, width = x_of_column[item.column]
            placed.x[item.box] = left + (width - widths[item.box]) / 2
            placed.y[item.box] = tops[item.lane] + item.y - item.height / 2
    for route in routes:
        placed.routes.append([(x_of_column[p.column][0], x_of_column[p.column][0] + x_of_column[p.column][1],
                               tops[p.lane] + p.y) for p in route])
    bottom = MARGIN
    for i, lane in enumerate(model.lanes):
        here = [item for item in items if item.lane == i]
        low = max((item.y + item.height / 2 for item in here), default=0.0)
        top = tops[i] - LANE_HEAD
        placed.lanes.append((lane, top, LANE_HEAD + low + LANE_PADDING))
        bottom = top + LANE_HEAD + low + LANE_PADDING
    placed.size = (total_width, bottom + MARGIN)
    return placed


def _columns(model: Model) -> list[int]:
    """The column of each box: one after the last of its sources. What no feed leads to (variables, their
    reads) moves next to what takes it."""
    count = len(model.boxes)
    sources: list[list[int]] = [[] for _ in range(count)]
    targets: list[list[int]] = [[] for _ in range(count)]
    for link in model.links:
        if link.source < link.target:  # boxes stand in step order; the others go back
            sources[link.target].append(link.source)
            targets[link.source].append(link.target)
    columns = [0] * count
    floats = [False] * count
    for i in range(count):
        columns[i] = max((columns[s] + 1 for s in sources[i]), default=0)
        floats[i] = model.boxes[i].kind != "feed" and all(floats[s] for s in sources[i])
    for i in reversed(range(count)):
        if floats[i] and targets[i]:
            columns[i] = min(columns[t] for t in targets[i]) - 1
    return columns


def _add_points(model: Model, columns: list[int], items: list[_Item],
                lane_of: dict[str, int]) -> list[list[_Item]]:
    """The points of each link; neighbours are linked up."""
    total = sum(max(0, columns[k.target] - columns[k.source] - 1) for k in model.links)
    points: dict[tuple[int, int, int], _Item] = {}
    routes: list[list[_Item]] = []
    for link in model.links:
        source, target = items[link.source], items[link.target]
        route: list[_Item] = []
        if columns[link.source] < columns[link.target] and total <= _MOST_POINTS:
            lane = lane_of[model.boxes[link.target].lane]
            previous = source
            for column in range(columns[link.source] + 1, columns[link.target]):
                point = points.get((link.source, lane, column))
                if point is None:
                    point = points[link.source, lane, column] = _Item(None, column, lane)
                    items.append(point)
                    _connect(previous, point)
                route.append(point)
                previous = point
            _connect(previous, target)
        routes.append(route)
    return routes


def _connect(a: _Item, b: _Item) -> None:
    a.after.append(b)
    b.before.append(a)


def _grid(items: list[_Item]) -> dict[tuple[int, int], list[_Item]]:
    """(lane, column) -> items, in columns from left to right."""
    grid: dict[tuple[int, int], list[_Item]] = {}
    for item in sorted(items, key=lambda i: i.column):
        grid.setdefault((item.lane, item.column), []).append(item)
    return grid


def _order(grid: dict[tuple[int, int], list[_Item]]) -> None:
    for column in grid.values():
        for i, item in enumerate(column):
            item.place = i
    keys = list(grid)
    for sweep in range(_SWEEPS):
        for key in keys if sweep % 2 == 0 else reversed(keys):
            column = grid[key]
            wanted = []
            for item in column:
                near = item.before if sweep % 2 == 0 else item.after
                wanted.append((_mean([n.lane * 1e6 + n.place for n in near]) if near else item.lane * 1e6
                               + item.place, item.place))
            order = sorted(range(len(column)), key=lambda i: wanted[i])
            grid[key] = [column[i] for i in order]
            for i, item in enumerate(grid[key]):
                item.place = i


def _settle(grid: dict[tuple[int, int], list[_Item]], lanes: int) -> list[float]:
    """Set each item's y within its lane; gives the top of each lane's content."""
    for column in grid.values():
        y = 0.0
        for item in column:
            item.y = y + item.height / 2
            y += item.height + item.gap
    keys = list(grid)
    for sweep in range(12):
        for key in keys if sweep % 2 == 0 else reversed(keys):
            column = grid[key]
            wanted = []
            for item in column:
                near = [n for n in (item.before + item.after) if n.lane == item.lane]
                wanted.append(_mean([n.y for n in near]) if near else item.y)
            for item, y in zip(column, _nearest_in_order(column, wanted)):
                item.y = y
    tops: list[float] = []
    top = MARGIN
    for lane in range(lanes):
        here = [item for key, column in grid.items() if key[0] == lane for item in column]
        high = min((item.y - item.height / 2 for item in here), default=0.0)
        for item in here:
            item.y -= high
        tops.append(top + LANE_HEAD)
        low = max((item.y + item.height / 2 for item in here), default=0.0)
        top += LANE_HEAD + low + LANE_PADDING + LANE_GAP
    return tops


def _nearest_in_order(column: list[_Item], wanted: list[float]) -> list[float]:
    """The places nearest to `wanted` (least squares) at which the items keep their order and their
    distances."""
    offsets = [0.0]
    for a, b in zip(column, column[1:]):
        offsets.append(offsets[-1] + a.height / 2 + b.height / 2 + max(a.gap, b.gap))
    blocks: list[tuple[float, int]] = []  # (mean of what its items want, how many)
    for want, offset in zip(wanted, offsets):
        mean, n = want - offset, 1
        while blocks and blocks[-1][0] > mean:
            other, m = blocks.pop()
            mean, n = (mean * n + other * m) / (n + m), n + m
        blocks.append((mean, n))
    made: list[float] = []
    for mean, n in blocks:
        made += [mean + offsets[len(made) + i] for i in range(n)]
    return made


def _column_places(model: Model, columns: list[int],
                   widths: list[float]) -> tuple[list[tuple[float, float]], float]:
    """(left, width) of each column, and the width of all."""
    count = max(columns, default=0) + 1
    broadest = [40.0] * count
    for i, column in enumerate(columns):
        broadest[column] = max(broadest[column], widths[i])
    places: list[tuple[float, float]] = []
    x = MARGIN + LANE_PADDING
    for width in broadest:
        places.append((x, width))
        x += width + COLUMN_GAP
    return places, max(x - COLUMN_GAP + LANE_PADDING + MARGIN, 360.0)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
