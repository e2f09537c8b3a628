"""The optimised step gives the plain step's bits, whatever the graph, the feeds and the devices."""

from hypothesis import HealthCheck, given, settings

from tests.compiler.interpreter import DEAD, Interpreter, compiled, devices, plain_options, same_bits
from tests.compiler.random_steps import Program, programs

TWO = ("", "/cpu:0", "/cpu:1")
TASKS = ("", "/job:a/task:0/cpu:0", "/job:a/task:1/cpu:0", "/job:b/task:0/cpu:1", "/job:b/task:0/cpu:0")
MANY = ("/job:a/task:0/cpu:0", "/job:a/task:1/cpu:0", "/job:b/task:0/cpu:0", "/job:b/task:0/cpu:1")
_settings = settings(max_examples=150, suppress_health_check=list(HealthCheck))


def outcome(program: Program, on, **options):
    """What two runs in a row fetch, and the variable after them."""
    run = Interpreter(on)
    run.run(compiled(program.graph, targets=program.init, on=on, **options))
    step = compiled(program.graph, program.fetches, program.targets, program.feeds, on=on, **options)
    made = [run.run(step, program.values) for _ in range(2)]
    read = program.graph.get_operation_by_name("v")
    with program.graph.as_default():
        from graphrt.core import raw
        value = raw.ReadVariableOp(read.outputs[0], dtype="float32")
    return [*made[0], *made[1], *run.run(compiled(program.graph, value, on=on, **options))]


def assert_same(a, b):
    assert len(a) == len(b)
    for x, y in zip(a, b):
        assert (x is DEAD) == (y is DEAD)
        assert x is DEAD or same_bits(x, y)


@_settings
@given(programs())
def test_optimised_is_plain_on_one_device(program):
    on = devices("cpu:0")
    assert_same(outcome(program, on), outcome(program, on, **plain_options()))


@_settings
@given(programs(devices=TWO))
def test_partitioned_is_unpartitioned_plain_and_optimised(program):
    two = devices("cpu:0", "cpu:1")
    plain = outcome(program, two, **plain_options())
    assert_same(outcome(program, two), plain)
    assert_same(outcome(program, devices("cpu:0"), soft_placement=True, **plain_options()), plain)


@_settings
@given(programs(devices=TASKS))
def test_cut_by_task_and_again_by_device_is_the_same(program):
    from graphrt.compiler.graph_def import to_graph_def
    from graphrt.compiler.options import CompileOptions
    from graphrt.compiler.pipeline import compile_partition
    from graphrt.protos import graph_pb2
    many = devices(*MANY)
    plain = outcome(program, many, **plain_options())
    assert_same(outcome(program, many), plain)
    run = Interpreter(many)
    run.run(compiled(program.graph, targets=program.init, on=many))
    step = compiled(program.graph, program.fetches, program.targets, program.feeds, on=many, by_task=True)
    parts = []
    for part in step.partitions:
        local = [d for d in many if d.name.startswith(part.device)]
        options = CompileOptions(local[0].name, name_suffix="_G", verify=True)
        # As RegisterGraph carries it: bytes.
        received = graph_pb2.GraphDef.FromString(to_graph_def(part).SerializeToString())
        parts += compile_partition(received, local, options).partitions
    assert_same(run.run(parts, program.values), plain[:len(program.fetches)])
