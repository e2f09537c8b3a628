import re
from xml.etree import ElementTree

import numpy as np
import pytest

from graphrt.compiler.explanation import explain, human_bytes
from graphrt.compiler.picture_model import MOST_BOXES, model_of
from graphrt.core import raw
from graphrt.core.graph import Graph
from graphrt.tools import explain as command
from tests.compiler.interpreter import compiled, devices
from tests.compiler.test_lower import const

TASKS = ("/job:worker/task:0/cpu:0", "/job:ps/task:0/cpu:0")
SVG = "{http://www.w3.org/2000/svg}"


def model(batch=100):
    """A softmax model's gradient step: variables on the parameter server, the rest on a worker."""
    g = Graph()
    with g.as_default():
        x = raw.Placeholder(dtype="float32", shape=[batch, 4], name="x")
        with g.device("/job:ps"):
            w = raw.VariableV2(shape=[4, 2], dtype="float32", name="layer/w")
            read = raw.Identity(w, name="layer/w/read")
        y = raw.Softmax(raw.MatMul(x, read, name="layer/MatMul"), name="layer/y")
        raw.Neg(y, name="unneeded")
        grad = raw.MatMul(x, raw.Sub(y, raw.Mul(const(2.0), const(0.25), name="half"), name="error"),
                          transpose_a=True, name="grad")
        train = raw.ApplyGradientDescent(w, const(0.5), grad, name="train")
    return g, y, train


@pytest.fixture
def explanation():
    g, y, train = model()
    return explain(compiled(g, fetches=y, targets=train.op, feeds="x:0", on=devices(*TASKS)))


def test_the_text_says_what_each_pass_did(explanation):
    text = explanation.text()
    assert text.startswith("Step: fetch layer/y:0; run train; feed x:0\n")
    assert re.search(r"prune +13 .*kept 11 of 13 nodes of the graph, removed 1; 1 fed, 1 fetched", text)
    assert "half: Mul is 0.5" in text
    assert "asked for: /job:ps: layer/w/read" in text
    assert "with 'layer/w': " in text
    assert "/job:ps/replica:0/task:0/device:CPU:0: " in text


def test_every_cut_edge_has_its_key_and_bytes(explanation):
    edges = {e.tensor: e for e in explanation.cut_edges}
    assert set(edges) == {"layer/w/read:0", "grad:0"}
    edge = edges["layer/w/read:0"]
    assert (edge.size, edge.takers) == (32, ("layer/MatMul",))
    sends = [n for p in explanation.compiled.partitions for n in p.graph if n.type == "_Send"]
    name = next(n for n in sends if n.inputs[0][0].name == "layer/w/read").attrs["tensor_name"].decode()
    incarnation = next(d for d in explanation.compiled.step.nodes if d.name == "layer/w/read")
    assert incarnation.device == edge.from_device
    assert re.fullmatch(rf"/job:ps/replica:0/task:0/device:CPU:0;[0-9a-f]{{16}};"
                        rf"/job:worker/replica:0/task:0/device:CPU:0;{re.escape(name)};0:0", edge.key)
    assert edge.key in explanation.text()
    assert "2 tensors and 0 control edges cross, 64 B a step" in explanation.text()


def test_the_key_is_that_of_the_runtime(explanation):
    from graphrt.runtime.starters import node_key
    sends = [n for p in explanation.compiled.partitions for n in p.graph if n.type == "_Send"]
    assert {e.key for e in explanation.cut_edges} == {node_key(n) for n in sends}


def test_open_sizes_control_edges_and_their_takers():
    g, y, train = model(batch=None)
    with g.as_default():
        copy = raw.Identity(y, name="layer/copy")
        with g.device("/job:ps"), g.control_dependencies([copy]):
            done = raw.NoOp(name="done")
        with g.device("/job:ps"):
            far = raw.Neg(y, name="far")
    made = explain(compiled(g, targets=[done, far.op], feeds="x:0", on=devices(*TASKS), simplify=False))
    edges = {e.tensor: e for e in made.cut_edges}
    assert edges["layer/y:0"].size is None and edges["layer/y:0"].takers == ("far",)
    assert "layer/y:0  float32 (?, 2), 8 B x ?" in made.text()
    assert (edges["^layer/copy"].size, edges["^layer/copy"].takers) == (0, ("done",))


def test_full_text_lists_every_node():
    g = Graph()
    with g.as_default():
        y = raw.AddN([raw.Neg(const(float(i)), name=f"n{i}") for i in range(20)], name="y")
    made = explain(compiled(g, fetches=y))
    assert "more)" in made.text() and "n19: Neg is -19" not in made.text()
    assert "n19: Neg is -19" in made.text(full=True)


def test_the_picture_is_one_svg_with_a_lane_a_device_and_its_cut_edges(explanation):
    root = ElementTree.fromstring(explanation.svg())
    lanes = [g for g in root.iter(f"{SVG}g") if g.get("class") == "lane"]
    heads = ["".join(lane.find(f"{SVG}text").itertext()) for lane in lanes]
    assert [h.split(":")[0] for h in heads] == ["worker/0 CPU", "ps/0 CPU"]
    boxes = {g.find(f"{SVG}text").text for g in root.iter(f"{SVG}g")
             if (g.get("class") or "").startswith("box")}
    assert {"x", "layer/w", "layer/w/read", "layer/MatMul", "layer/y", "error", "grad", "train"} <= boxes
    assert "half" not in boxes, "constants stand in what takes them"
    assert "Sub(\N{MIDDLE DOT}, 0.5)" in explanation.svg()
    cut = [p for p in root.iter(f"{SVG}path") if "cut" in (p.get("class") or "")]
    assert len(cut) == 2
    pills = ["".join(a.find(f"{SVG}text").itertext()) for a in root.iter(f"{SVG}a")]
    assert sorted(p.split()[1] for p in pills) == ["32", "32"]


def test_boxes_do_not_overlap_and_lie_in_their_lane(explanation):
    root = ElementTree.fromstring(explanation.svg())
    boxes = []
    for group in root.iter(f"{SVG}g"):
        if (group.get("class") or "").startswith("box"):
            rect = group.find(f"{SVG}rect")
            boxes.append([float(rect.get(k)) for k in ("x", "y", "width", "height")])
    assert len(boxes) > 5
    for i, (x, y, w, h) in enumerate(boxes):
        for x2, y2, w2, h2 in boxes[i + 1:]:
            assert x + w <= x2 or x2 + w2 <= x or y + h <= y2 or y2 + h2 <= y
    lanes = [[float(g.find(f"{SVG}rect").get(k)) for k in ("y", "height")]
             for g in root.iter(f"{SVG}g") if g.get("class") == "lane"]
    for _, y, _, h in boxes:
        assert any(top <= y and y + h <= top + height for top, height in lanes)


def test_the_page_needs_no_other_resource_and_is_the_same_every_time(explanation):
    page = explanation.html()
    assert page == explanation.html()
    urls = re.findall(r"(?:https?:)?//[^\s\"'<>)]+", page)
    assert set(urls) <= {"http://www.w3.org/2000/svg"}
    assert not re.search(r"<(script|link|img|iframe|object)\b|@import|url\((?!#)", page)
    assert "prefers-color-scheme: dark" in page
    for edge in explanation.cut_edges:
        assert edge.key in page


def test_names_are_escaped():
    g = Graph()
    with g.as_default():
        y = raw.Neg(raw.Placeholder(dtype="float32", shape=[], name="x"), name="a>b")
    made = explain(compiled(g, fetches=y, feeds="x:0"))
    ElementTree.fromstring(made.svg())
    assert "a&gt;b" in made.html("<title>") and "&lt;title&gt;" in made.html("<title>")


@pytest.mark.parametrize("scopes,inside", [(40, 60), (1, 2000), (900, 1)])
def test_a_large_graph_is_drawn_by_scopes(scopes, inside):
    g = Graph()
    with g.as_default():
        y = raw.Placeholder(dtype="float32", shape=[], name="x")
        for i in range(scopes):
            with g.name_scope(f"block{i}"):
                for _ in range(inside):
                    y = raw.Exp(y)
    step = compiled(g, fetches=y, feeds="x:0").step
    drawn = model_of(step, {})
    assert drawn.is_grouped and len(drawn.boxes) <= MOST_BOXES
    assert sum(len(b.members) for b in drawn.boxes) == len(step)
    if scopes == 40:
        titles = {b.title for b in drawn.boxes}
        assert len(titles & {f"block{i}" for i in range(scopes)}) >= 38, "one or two may be open"
    ElementTree.fromstring(explain(compiled(g, fetches=y, feeds="x:0")).svg())


def test_bytes_are_written_as_people_read_them():
    assert [human_bytes(n) for n in (0, 999, 1000, 313_600, 31_400_000, 5_000_000_000)] == [
        "0 B", "999 B", "1.0 KB", "313.6 KB", "31.4 MB", "5.0 GB"]


# -- the command -------------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path):
    g, _, _ = model()
    path = tmp_path / "model.pb"
    path.write_bytes(g.as_graph_def().SerializeToString())
    return path


def test_the_command_prints_the_text_and_writes_the_page(file, capsys):
    html, svg = file.with_name("step.html"), file.with_name("step.svg")
    status = command.main([str(file), "--fetch", "layer/y", "--fetch", "train:0", "--feed", "x", "--device",
                           TASKS[0], "--device", TASKS[1], "--html", str(html), "--svg", str(svg)])
    out = capsys.readouterr().out
    assert status == 0
    for text in ("Step: fetch layer/y:0, train:0; feed x:0", "Cut edges: ", f"Picture: {html}"):
        assert text in out
    assert html.read_text().startswith("<!DOCTYPE html>")
    ElementTree.fromstring(svg.read_text())


def test_text_and_meta_graphs_and_saved_models_are_read(file, tmp_path, capsys):
    from google.protobuf import text_format

    from graphrt.protos import graph_pb2, meta_graph_pb2, saved_model_pb2
    graph_def = graph_pb2.GraphDef.FromString(file.read_bytes())
    (tmp_path / "m.pbtxt").write_text(text_format.MessageToString(graph_def))
    meta = meta_graph_pb2.MetaGraphDef(graph_def=graph_def)
    meta.signature_def["serve"].inputs["x"].name = "x:0"
    meta.signature_def["serve"].outputs["y"].name = "layer/y:0"
    (tmp_path / "m.meta").write_bytes(meta.SerializeToString())
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "saved_model.pb").write_bytes(
        saved_model_pb2.SavedModel(meta_graphs=[meta]).SerializeToString())
    where = ["--device", TASKS[0], "--device", TASKS[1]]
    assert command.main([str(tmp_path / "m.pbtxt"), "--fetch", "layer/y", "--feed", "x", *where]) == 0
    assert command.main([str(tmp_path / "m.meta"), "--signature", "serve", *where]) == 0
    assert command.main([str(tmp_path / "saved"), "--signature", "serve", *where]) == 0
    assert capsys.readouterr().out.count("Step: fetch layer/y:0; feed x:0") == 3


@pytest.mark.parametrize("arguments,told", [
    ([], "nothing is asked for: give --fetch or --target. Of .*--fetch train"),
    (["--fetch", "layer/z"], "'layer/z' refers to an Operation not in the graph. Near it: 'layer/y'"),
    (["--fetch", "layer/y", "--device", "cpu"], "at '/cpu' expected"),
    (["--fetch", "layer/y", "--device", "/job:ps"], "a device has a type and a number, as in /job:ps/cpu:0"),
    (["--fetch", "layer/y", "--device", "gpu:0"], "feeds and fetches need a CPU"),
    (["--fetch", "layer/y"], "Cannot assign a device for operation layer/w"),
    (["--signature", "serve"], "has no signature 'serve'"),
])
def test_the_command_says_what_is_wrong(file, capsys, arguments, told):
    assert command.main([str(file), *arguments]) == 2
    assert re.search(told, capsys.readouterr().err)


def test_files_that_are_no_model_are_told(tmp_path, capsys):
    (tmp_path / "x.pb").write_bytes(b"\xff\xff not a model")
    for path, told in ((tmp_path / "x.pb", "is not a GraphDef"), (tmp_path / "gone.pb", "there is no file"),
                       (tmp_path, "is a folder without saved_model.pb")):
        assert command.main([str(path), "--fetch", "y"]) == 2
        assert told in capsys.readouterr().err


def test_values_in_boxes_are_short():
    g = Graph()
    with g.as_default():
        x = raw.Placeholder(dtype="float32", shape=[3], name="x")
        y = raw.AddV2(raw.Mul(x, const(np.arange(3.0)), name="m"), const(np.pi), name="y")
    made = explain(compiled(g, fetches=y, feeds="x:0")).svg()
    assert "Mul(\N{MIDDLE DOT}, [0 1 2])" in made and "AddV2(\N{MIDDLE DOT}, 3.142)" in made
