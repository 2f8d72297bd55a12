"""The page of a release: it loads nothing, says what the files say, and stays small."""

import json
import re
from datetime import date
from html import unescape

import numpy as np
import pytest

import tallytree as tt
from tallytree.publish.about import About
from tallytree.publish.release import table_layout as partition
from tallytree.publish.report import Page, cells, embed
from tallytree.publish.report.cells import Cells
from tallytree.publish.report.release_page import read_release_page
from tests.publish.report.worlds import ATTACK, NAMES, SCRIPT, released, squares

LARGEST = 3_000_000  # bytes of a page


def data_in(page):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page.html, re.DOTALL)[1])


@pytest.fixture(scope="module")
def release():
    return released()


def test_a_page_refers_to_nothing_outside_itself_and_forbids_it(release):
    html = unescape(release.report().html)
    assert "default-src 'none'" in html
    assert "unsafe" not in html
    for found in re.findall(r'\b(?:src|href|action|data|srcset|poster)\s*=\s*"([^"]*)"', html):
        assert found.startswith("#"), found
    assert not re.search(r"@import|url\((?!#)|\son\w+=|style=", html)


def test_the_same_release_gives_the_same_page(release):
    assert release.report().html == release.report().html


def test_names_and_titles_never_become_markup():
    release = released(NAMES, title=f"Homes {SCRIPT}")
    html = release.report(map=squares(release), groups=ATTACK).html
    assert html.count("<script") == 2
    assert html.count("</script>") == 2
    assert "<img" not in html
    assert data_in(Page(html))["names"][3:] == NAMES


@pytest.mark.parametrize("value", ["</script>", "<!--", "&lt;", "\u2028", "a\\u003c", '"'])
def test_what_is_embedded_is_read_back_as_it_was_and_has_no_markup_in_it(value):
    text = embed({value: [value]})
    assert json.loads(text) == {value: [value]}
    assert not re.search("[<>&\u2028\u2029]", text)


@pytest.mark.parametrize("public", [True, False])
def test_the_embedded_numbers_are_those_of_the_tables(public):
    release = released(public_totals=public)
    data = data_in(release.report())
    assert data["all"]
    table = release.table().to_pylist()
    width = len(data["classes"])
    for place, row in enumerate(table):
        region, size = divmod(place, width)
        assert (data["ids"][region], data["sizes"][size]) == (row["region"], row["size"])
        assert data["count"][region][size] == row["count"]
        for name in data["columns"]:
            sign = -1 if name.endswith("lower") else 1
            assert row["count"] + sign * data["ends"][name][region][size] == row[name]
    for region, row in enumerate(release.entities_table().to_pylist()):
        assert data["entities"][region] == [row["entities"]]
        assert data["entity_ends"]["lower"][region] == [row["lower"]]


AREAS = {
    "districts": {"Mixed": ["county 0", "county 4"], SCRIPT: ["West", "East"]},
    "wards": {"One": ["East"]},
}
ABOUT = {"publisher": f"Office {ATTACK}", "reference_date": "2025-03-31", "licence": "CC-BY-4.0", "source": "Register"}


@pytest.mark.parametrize("public", [True, False])
def test_areas_are_embedded_after_the_regions_with_the_numbers_of_their_table(public):
    release = released(public_totals=public, areas=AREAS)
    data = data_in(release.report())
    first, width = data["regions"], len(data["classes"])
    assert data["ids"][:first] == list(release.hierarchy.regions.ids)
    assert data["names"][first:] == ["Mixed", SCRIPT, "One"]
    for number, row in enumerate(release.area_table().to_pylist()):
        place, size = first + number // width, number % width
        assert data["levels"][data["level"][place]] == row["kind"]
        assert data["count"][place][size] == row["count"]
        for name in data["columns"]:
            sign = -1 if name.endswith("lower") else 1
            assert row["count"] + sign * data["ends"][name][place][size] == row[name]
    assert data["entities"][first + 1] == data["entities"][0]  # this area is the whole


@pytest.mark.parametrize("public", [True, False])
def test_averages_medians_and_numbers_of_groups_have_the_intervals_of_their_queries(public):
    release = released(public_totals=public, areas=AREAS)
    data = data_in(release.report())
    ends = data["place_ends"]
    places = [*release.hierarchy.regions.ids, *release.areas]
    for place, (mean, groups) in enumerate(zip(ends["mean"], ends["groups"], strict=True)):
        median = release.ask(tt.Query("median", places[place]), typical=False)
        assert (data["medians"][place], ends["median"][place]) == ([median.released], list(median.guaranteed))
        low, high = release.mean_size(places[place], typical=False).guaranteed
        assert mean[0] <= 100 * max(low, 0) < mean[0] + 1
        assert mean[1] - 1 < 100 * min(high, release.sizes[-1]) <= mean[1]
        answer = release.estimate(places[place], typical=False)
        assert groups == ([-1, -1] if public else list(answer.guaranteed))


def test_a_page_names_the_publisher_and_the_dates_and_says_how_to_cite_it(release, tmp_path):
    made = released(about=ABOUT)
    made.save(tmp_path / "release")
    html = read_release_page(tmp_path / "release").html
    assert "<img" not in html
    text = unescape(html)
    today = date.today()
    assert f"Published by Office {ATTACK} · Reference date: 31 March 2025" in text
    assert f"Made on {today.day} {today:%B} {today.year} by tallytree" in text
    assert "Licence: CC-BY-4.0" in text
    assert f"Office {ATTACK}. Homes by size (2025-03-31). Release {made.release_id[:16]}, made with" in text
    assert "Published by" not in release.report().html


def test_the_numbers_at_the_top_have_their_unit_their_interval_and_the_cut_off(release):
    cards = unescape(re.search(r'<ul class="facts">(.*?)</ul>', release.report().html, re.DOTALL)[1])
    groups, entities = release.estimate(None, typical=False), release.entities_table().to_pylist()[0]
    assert f"<b>{release.total:,} groups</b>{groups.guaranteed[0]:,} to {groups.guaranteed[1]:,} with 95 %" in cards
    assert f"<b>{entities['entities']:,} entities</b>" in cards
    assert cards.count("sizes above 6 counted as 6") == 2
    public = released(public_totals=True).report().html
    assert "a public number, without noise" in public


def test_where_there_is_no_room_the_largest_regions_are_embedded_with_those_above_them(release):
    shown = Cells.of(release)
    tree, groups = release.hierarchy.regions, shown.groups[:, 0]
    whole = cells.select_regions(shown)
    assert len(whole) == len(tree)
    for room in range(0, 1500, 50):
        kept = set(cells.select_regions(shown, room=room).tolist())
        assert 0 in kept
        assert all(int(tree.parents[region]) in kept for region in kept if region)
        for left in set(range(len(tree))) - kept:
            level = tree.level_slice(int(tree.level_of[left]))
            assert all(groups[left] <= groups[region] for region in kept & set(range(level.start, level.stop)))


def test_a_page_that_leaves_regions_out_says_how_many(release, monkeypatch):
    monkeypatch.setattr(cells.select_regions, "__kwdefaults__", {"room": 700})
    page = release.report()
    left = len(release.hierarchy) - len(data_in(page)["ids"])
    assert left > 0
    assert f"The {left} regions with the fewest groups are not in this page" in page.html


def test_many_sizes_are_shown_in_classes_with_their_sums_and_true_intervals():
    release = released(sizes=90, scale=30)
    data = data_in(release.report())
    assert data["sizes"] is None
    assert data["classes"][-1] == "65+"
    root = release.counts[0]
    assert data["count"][0][:4] == [root[0], root[1], root[2:4].sum(), root[4:8].sum()]
    answer = release.estimate(None, range(5, 9), typical=False)
    place = data["classes"].index("5–8")
    assert data["count"][0][place] - data["ends"]["lower"][0][place] == answer.guaranteed[0]
    assert data["count"][0][place] + data["ends"]["upper"][0][place] == answer.guaranteed[1]


@pytest.mark.parametrize("intervals", ["none", "guaranteed"])
def test_a_release_without_some_error_bars_has_a_page_too(intervals):
    page = released(intervals=intervals).report()
    assert ("has no error bars" in page.html) == (intervals == "none")


@pytest.mark.parametrize("mechanism", ["coc-matching", "bottom-up", "joint-counts"])
def test_releases_of_other_mechanisms_have_a_page(mechanism):
    assert len(released(mechanism=mechanism, public_totals=True).report().encode()) < LARGEST


def test_one_region_and_one_size_make_a_page():
    from tallytree.tables import GroupSizes, Sealed

    tree = tt.Hierarchy.from_levels({"nation": ["N"]}, ["nation"])
    private = GroupSizes(tree, 1, Sealed(np.array([[7]])))
    made = tt.release(private, budget=tt.Budget(rho="0.1"), unit=tt.one_group())
    assert "Regions cannot be compared" in made.report().html


def test_the_widest_bar_on_a_level_is_said_at_the_top(release):
    widest = max(
        max(row["upper"] - row["count"], row["count"] - row["lower"])
        for row in release.table().to_pylist()
        if row["level"] == "county"
    )
    assert re.search(rf'<th scope="row">county</th>.*?± {widest:,}</td>', release.report().html, re.DOTALL)


BY = tt.Categories.of({"tenure": ["owned", "rented"]}, "group")


@pytest.mark.parametrize("by", [None, BY], ids=["without categories", "by category"])
def test_of_a_large_release_the_page_shows_the_upper_levels_from_memory_and_from_files_alike(by, monkeypatch, tmp_path):
    made = released(by=by)
    most = 3 * (1 if by is None else 3) * 6  # three regions above the counties, slots and sizes
    whole = data_in(made.report())
    monkeypatch.setattr(partition, "SMALL", 0)
    made.save(tmp_path / "release")
    for limit, levels in ((most, 2), (most - 1, 1), (1, 1)):
        monkeypatch.setattr(cells, "MOST_CELLS", limit)
        monkeypatch.setattr("tallytree.publish.report.release_page.MOST_CELLS", limit)
        page = made.report(directory=tmp_path / "release")
        data = data_in(page)
        assert data["levels"] == whole["levels"][:levels]
        assert data["count"] == whole["count"][: len(data["ids"])]
        assert data["entity_ends"]["lower"] == whole["entity_ends"]["lower"][: len(data["ids"])]
        assert "This page shows the upper levels of a large release" in page.html
        read = read_release_page(tmp_path / "release")
        assert data_in(read) == data
        for text in (page.html, read.html):  # the budget of the lower levels is stated too
            assert '<th scope="row">county' in re.search(r'<table id="spendings".*?</table>', text, re.DOTALL)[0]


def test_what_is_wrong_with_the_statement_of_a_release_is_said(release, tmp_path):
    release.save(tmp_path / "release")
    statement = json.loads((tmp_path / "release" / "privacy.json").read_text())
    (tmp_path / "release" / "privacy.json").write_text(json.dumps({**statement, "budget": 1}))
    with pytest.raises(tt.ReleaseError, match="cannot write the report"):
        read_release_page(tmp_path / "release")


def test_every_level_is_said_to_have_been_spent_on_or_not(release):
    html = release.report().html
    rows = re.search(r'<table id="spendings".*?</table>', html, re.DOTALL)[0]
    for name in release.hierarchy.levels:
        assert f'<th scope="row">{name}</th>' in rows
    measured = {part.level for part in release.measurements.measured}
    assert rows.count("its numbers follow from those of the other levels") == release.hierarchy.depth - len(measured)


def test_words_for_groups_and_entities_are_used_and_checked(release):
    html = release.report(groups="households", entities="persons").html
    assert "about any one of the persons" in html
    with pytest.raises(tt.SpecError, match="plural"):
        release.report(groups=" ")
    with pytest.raises(tt.SpecError, match="plural"):
        About(groups="x" * 61)


def test_a_page_is_saved_whole_over_an_older_one_and_what_fails_says_why(release, tmp_path):
    page = release.report()
    path = page.save(tmp_path / "report.html")
    assert path.read_bytes() == page.encode()
    Page("<!doctype html>").save(path)
    assert path.read_text() == "<!doctype html>"
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]
    with pytest.raises(tt.ReleaseError, match="cannot be written"):
        page.save(tmp_path / "no" / "report.html")
    assert "srcdoc" in page._repr_html_()
