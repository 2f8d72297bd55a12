"""Some of the hostile numbers and random releases that `make torture` tries by the thousand."""

from tests.faults import kernels, releases
from tests.faults.isolated import run_cases


def test_estimators_end_keep_all_sums_and_are_as_near_as_solvers_say():
    tally = kernels.run(5 * len(kernels.KERNELS), seed=27)
    assert tally.broken == 0, "\n".join(tally.examples)


def test_random_releases_are_refused_before_spending_or_verify():
    tally = releases.run(3 * len(releases.RELEASABLE), seed=27, first=57)  # 0.3.0 never ended numbers 80 and 91
    assert tally.broken == 0, "\n".join(tally.examples)


def one(number: int, seed: int) -> tuple[str, str] | None:
    """Stands for a harness: case 1 never ends, case 2 breaks a promise, case 3 ends the process."""
    if number == 1:
        _never_end()
    if number == 3:
        raise SystemExit(3)
    return ("wrong", "as planted") if number == 2 else None


def _never_end() -> None:
    """Run a compiled loop that hears no signal of Python's."""
    import numba

    def spin(value: float) -> float:
        while value < 2.0:
            value = value * 0.5 + 0.5
        return value

    numba.njit(nogil=True)(spin)(1.0)


def test_a_case_that_never_ends_is_found_and_the_next_ones_run():
    found = run_cases("tests.faults.test_kernels", 0, 5, seed=0, seconds=0.5)
    assert [(case.number, case.promise) for case in found] == [(1, "hung"), (2, "wrong"), (3, "tracebacks")]


def test_the_checks_notice_a_wrong_estimate(monkeypatch):
    wrong = {"nearest_consistent": -1, "joint_counts": 1, "allocate_rows": 2}
    for name, amount in wrong.items():
        right = getattr(kernels, name)

        def shifted(*given, right=right, amount=amount, **named):
            found = right(*given, **named)
            values = found.values if hasattr(found, "values") else found
            values[0, 0] += amount
            return found

        monkeypatch.setattr(kernels, name, shifted)
    cases = [list(kernels.KERNELS).index(name) for name in ("nearest", "jointly_counts", "families")]
    assert [kernels.one(case, 27)[0] for case in cases] == ["wrong"] * 3
