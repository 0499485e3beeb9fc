"""A slice of the proof of `unspool stack` that is fast enough for every run: real programs and the hard
cases, compared with gdb. `make stack-proof` runs all of it."""

from pathlib import Path

import pytest

from tests.integration.targets import SYMBOLIZER, build, started
from tests.proof.stack_comparison import Comparison
from tests.proof.stack_proof import compare_process, compare_target, differences, summary
from tests.proof.stack_targets import all_targets

TARGETS = {target.name: target for target in all_targets()}


def assert_equal(result: Comparison) -> None:
    """Every line, and gdb did not lose its way."""
    text = "\n".join([summary("this", result), *differences(result)])
    assert result.lines > 0 and result.equal == result.lines and not result.lost, text


@pytest.mark.parametrize("name", ["python of the system", "redis", "nginx"])
def test_every_line_of_real_programs_is_gdbs(name: str, tmp_path: Path) -> None:
    target = TARGETS[name]
    if target.missing:
        pytest.skip(f"{target.missing} missing: apt-get install {target.package}")
    assert_equal(compare_target(target, tmp_path, rounds=1))


@pytest.mark.parametrize("source", ["blocked.c", "alternate_stack.c", "exception.cpp", "deep.c"])
def test_every_line_of_hard_cases_is_gdbs(source: str, tmp_path: Path) -> None:
    """Those that gdb can follow: not a vfork's parent, an ended main thread, or code made at run time."""
    with started(build(tmp_path, source)) as target:
        assert_equal(compare_process(target.pid, SYMBOLIZER))
