"""Parts of kernels: the same results as if they were kernels, without machine code of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba.core.runtime import _nrt_python as memory

import tallytree
from tallytree.core import kernels
from tallytree.core.kernels import in_threads, kernel, part_of_kernels


@part_of_kernels
def halved(values: np.ndarray) -> np.ndarray:
    found = np.empty(len(values))
    for place in range(len(values)):
        found[place] = values[place] / 2
    return found


@part_of_kernels
def inverse(value: float) -> float:
    if value < 0:
        raise ValueError("negative")
    return 1 / value


@part_of_kernels
def inverses_of_halves(values: np.ndarray) -> float:
    total = 0.0
    for half in halved(values):
        total += inverse(half)
    return total


@kernel
def summed(values: np.ndarray, times: int) -> float:
    total = 0.0
    for _ in range(times):
        total += inverses_of_halves(values)
    return total


@kernel
def first_inverse(values: np.ndarray) -> float:
    return inverse(halved(values)[0])


@pytest.mark.parametrize("kind", [np.float64, np.int64, np.int32])
def test_parts_compute_what_they_say_for_every_kind_of_argument(kind: type) -> None:
    values = np.arange(1, 9).astype(kind)
    assert summed(values, 1) == pytest.approx(sum(2 / value for value in range(1, 9)))
    assert first_inverse(values) == 2


def test_arrays_of_parts_are_freed() -> None:
    values = np.arange(1.0, 9.0)
    summed(values, 1)
    memory.memsys_enable_stats()
    try:
        summed(values, 1000)
        made, freed = memory.memsys_get_stats_alloc(), memory.memsys_get_stats_free()
    finally:
        memory.memsys_disable_stats()
    assert made == freed >= 1000


def test_errors_in_parts_reach_python() -> None:
    with pytest.raises(ValueError, match="negative"):
        summed(np.array([-1.0]), 1)
    with pytest.raises(ZeroDivisionError):
        first_inverse(np.zeros(1))


def test_python_cannot_call_a_part() -> None:
    with pytest.raises(TypeError):
        halved(np.ones(3))
    with pytest.raises(TypeError):
        inverse(1.0)


def test_a_cached_kernel_has_its_parts_in_it(tmp_path: Path) -> None:
    """A second process compiles nothing, parts included."""
    (tmp_path / "some_kernels.py").write_text(
        "import numpy as np\n"
        "from tallytree.core.kernels import kernel, part_of_kernels, told_of_compiling\n"
        "@part_of_kernels\n"
        "def doubled(values):\n"
        "    return values * 2\n"
        "@kernel\n"
        "def of_all(values):\n"
        "    return doubled(values).sum()\n"
        "begun = []\n"
        "with told_of_compiling(lambda begins: begun.append(begins)):\n"
        "    print(of_all(np.arange(5)), any(begun))\n"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "some_kernels.py"]
    said = [
        subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    assert said == ["20 True\n", "20 False\n"]


CALLER = """
import numpy as np
from tallytree.core.kernels import kernel, told_of_compiling
from tallytree.callee import changed
@kernel
def of_all(values):
    return changed(values).sum()
def run():
    begun = []
    with told_of_compiling(begun.append):
        print(of_all(np.arange(5)), any(begun))
"""
CALLEE = """
from tallytree.core.kernels import {kind}
@{kind}
def changed(values):
    return values * {factor}
"""


@pytest.mark.parametrize("kind", ["kernel", "part_of_kernels"])
def test_a_cached_kernel_follows_a_change_of_what_it_calls_in_another_file(kind: str, tmp_path: Path) -> None:
    package = tmp_path / "tallytree"
    shutil.copytree(Path(tallytree.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "caller.py").write_text(CALLER)
    cache = tmp_path / "cache"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "NUMBA_CACHE_DIR": str(cache)}
    said, files = [], []
    for factor in (2, 2, 3, 3, 5):
        (package / "callee.py").write_text(CALLEE.format(kind=kind, factor=factor))
        command = [sys.executable, "-c", "from tallytree.caller import run; run()"]
        said.append(subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True).stdout)
        files.append(len([path for path in cache.rglob("*") if path.is_file()]))
    assert said == ["20 True\n", "20 False\n", "30 True\n", "30 False\n", "50 True\n"]
    assert len(set(files)) == 1  # what is stale is overwritten


# -------------------------------------------------------------------- threads


def _fails_to_start(*_: object) -> int:
    raise RuntimeError("can't start new thread")


@pytest.mark.parametrize("start", [_fails_to_start, lambda *_: 0])  # lambda: the thread dies before its first step
def test_threads_that_do_not_start_cost_no_result(monkeypatch, start):
    monkeypatch.setattr(kernels, "start_new_thread", start)
    assert in_threads(lambda first, last: first * last, [(at, at + 1) for at in range(9)]) == [
        at * (at + 1) for at in range(9)
    ]


def test_results_come_in_the_order_of_the_blocks_and_the_first_error_is_raised():
    blocks = [(at, at + 1) for at in range(50)]
    assert in_threads(lambda first, last: first * last, blocks) == [first * last for first, last in blocks]
    assert in_threads(lambda first, last: first, []) == []

    def fails_at_seven(first: int, last: int) -> int:
        if first == 7:
            raise LookupError("seven")
        return first

    with pytest.raises(LookupError, match="seven"):
        in_threads(fails_at_seven, blocks)
