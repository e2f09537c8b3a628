"""The `graphrt` command: what it says, what it runs, and its exit status."""

import subprocess
import sys

import pytest

from graphrt import __version__
from graphrt.tools import main as command

DEADLINE_S = 60


def run(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "graphrt", *arguments], capture_output=True, text=True,
                          timeout=DEADLINE_S)


@pytest.mark.parametrize("arguments", [[], ["-h"], ["--help"], ["help"]])
def test_help_names_every_command_and_what_it_is_for(capsys, arguments):
    assert command.main(arguments) == 0
    text = capsys.readouterr().out
    for name, purpose in command.known_commands().items():
        assert f"  {name:<10} {purpose}" in text
    assert max(map(len, text.splitlines())) <= 110


@pytest.mark.parametrize("name", command.known_commands())
def test_every_command_has_its_own_help(capsys, name):
    assert command.main([name, "--help"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"usage: graphrt {name}") and "-h, --help" in text
    assert command.main(["help", name]) == 0
    assert capsys.readouterr().out == text


def test_version(capsys):
    assert command.main(["--version"]) == 0
    assert capsys.readouterr().out == f"graphrt {__version__}\n"


@pytest.mark.parametrize(("given", "meant"), [("lanuch", "launch"), ("tarce", "trace"), ("expl", "explain")])
def test_a_mistyped_command_is_told_what_was_meant(capsys, given, meant):
    assert command.main([given]) == 2
    out, err = capsys.readouterr()
    assert out == "" and f"there is no command '{given}': did you mean '{meant}'?" in err


def test_a_command_like_no_other_is_told_which_there_are(capsys):
    assert command.main(["zzz"]) == 2
    err = capsys.readouterr().err
    assert all(name in err for name in command.known_commands())


def test_a_mistyped_option_is_told_what_was_meant(capsys):
    assert command.main(["--verson"]) == 2
    assert "no option '--verson': did you mean '--version'?" in capsys.readouterr().err


def test_an_argument_that_does_not_fit_gives_status_2(capsys):
    assert command.main(["trace", "--top", "many", "file"]) == 2
    assert "invalid int value: 'many'" in capsys.readouterr().err


def test_the_module_runs_as_the_command():
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, f"graphrt {__version__}\n")
    assert run("nonsense").returncode == 2


def test_help_imports_no_command():
    code = ("import sys; from graphrt.tools.main import main; main(['--help']); "
            "print([m for m in sys.modules if m.startswith('graphrt.tools.')])")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.stdout.splitlines()[-1] == "['graphrt.tools.main']"


def test_a_reader_that_goes_away_is_no_error():
    process = subprocess.Popen([sys.executable, "-m", "graphrt", "coverage"], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    process.stdout.close()
    with process.stderr:
        assert process.stderr.read() == ""
    assert process.wait(DEADLINE_S) == 0
