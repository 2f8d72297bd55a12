"""Plots come out as pictures and as pages that need no network, and say that they are not private."""

import json
import re

import pytest

import tallytree as tt
from tallytree.lab import Results, compare
from tests.lab import helpers

pytest.importorskip("altair")
pytest.importorskip("vl_convert")

from tallytree.lab import plots


@pytest.fixture(scope="module")
def results():
    budgets = [tt.Budget(epsilon="0.1"), tt.Budget(epsilon=1)]
    return compare(helpers.small_truth(), ["pgsr-hierarchical-dp", "pgsr-cumulative-dp"], budgets, runs=2)


def test_an_experiment_has_three_plots_each_as_png_and_html(results, tmp_path):
    written = plots.save_all(results, tmp_path)
    assert {path.name for path in written} == {
        f"{name}.{ending}" for name in ("error-l1", "error-emd", "error-by-size") for ending in ("png", "html")
    }
    for path in written:
        content = path.read_bytes()
        if path.suffix == ".png":
            assert content.startswith(b"\x89PNG")
            assert len(content) > 10_000
        else:
            page = content.decode()
            assert "NOT PRIVATE" in page
            assert not re.search(r"<(script|link)[^>]+(src|href)=", page)
            assert "cdn." not in page


def test_the_runtime_plot_takes_several_experiments(results, tmp_path):
    larger = Results(results.rows.set_column(2, "max_size", [[50] * results.rows.num_rows]))
    chart = plots.runtime_against_sizes([results, larger])
    values = {row["max_size"] for row in rows_of(chart)}
    assert values == {5, 50}
    assert plots.save(chart, tmp_path / "runtime.png").stat().st_size > 10_000


def rows_of(chart):
    """The data of all panels."""
    content = json.loads(chart.to_json())
    named = [row for rows in content.get("datasets", {}).values() for row in rows]
    return [*named, *_inline(content)]


def _inline(value):
    if isinstance(value, dict):
        if isinstance(value.get("data"), dict):
            yield from value["data"].get("values", [])
        for inner in value.values():
            yield from _inline(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _inline(inner)


@pytest.mark.parametrize("signed", [False, True])
def test_the_plot_over_sizes_may_have_groups_on_its_axis(results, signed):
    chart = plots.error_against_size(results, budget="ε = 0.1", by="groups", signed=signed)
    rows = rows_of(chart)
    assert {row["budget"] for row in rows} == {"ε = 0.1"}
    assert all(0 <= row["groups"] <= 1 for row in rows)
    assert "NOT PRIVATE" in chart.to_json()


def test_error_bars_are_one_standard_error_and_stay_on_a_logarithmic_axis(results):
    for row in rows_of(plots.error_against_budget(results, "emd")):
        assert row["high"] == pytest.approx(row["mean"] + row["standard_error"])
        assert 0 < row["low"] <= row["mean"]


def test_what_cannot_be_plotted_is_a_clear_error(results, tmp_path):
    with pytest.raises(tt.SpecError, match="no numbers for 'nonsense'"):
        plots.error_against_budget(results, "nonsense")
    with pytest.raises(tt.SpecError, match="no results for budget"):
        plots.error_against_size(results, budget="ε = 9")
    with pytest.raises(tt.SpecError, match=r"\.png, \.svg or \.html"):
        plots.save(plots.error_against_budget(results), tmp_path / "plot.pdf")
