"""Pages in a real browser, opened from disk without a network: what people see, and what they cannot be made to see."""

from __future__ import annotations

import csv

import pytest

import tallytree as tt
from tallytree.demo.country import make_country
from tallytree.publish.release.areas import areas_to_publish
from tallytree.publish.release.release_run import Publication, estimate_release
from tallytree.publish.report.synthesis_page import make_synthesis_page
from tests.publish.report.browser import IN_BROWSER
from tests.publish.report.worlds import ATTACK, NAMES, released, squares
from tests.synthesis.made_up import made_up

pytestmark = IN_BROWSER
WIDTHS = {"phone": 360, "tablet": 768, "desk": 1280}
SERIOUS = ("serious", "critical")


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The demo's country, small, with its map: the folder of its release, with the page in it."""
    from tallytree.command.command_options import DemoOptions
    from tallytree.command.make import run_demo

    folder = tmp_path_factory.mktemp("demo")
    run_demo(DemoOptions(out=folder / "release", data=folder / "data", households=4000, quiet=True))
    return folder / "release"


@pytest.fixture(scope="module")
def with_areas(demo, tmp_path_factory):
    """The same with areas of two kinds, forty of them of one kind."""
    loaded = tt.Release.load(demo)
    counties = loaded.hierarchy.regions.ids[-120:]
    many = {f"District {number}": counties[3 * number : 3 * number + 5] for number in range(39)}
    areas = {"districts": {**many, ATTACK: counties[:2]}, "coasts": {"Coast": counties[::7]}}
    published = areas_to_publish(areas, loaded.hierarchy, len(loaded.sizes) + 1)
    made = estimate_release(loaded.measurements, loaded.made_by, Publication("Areas", "guaranteed", areas=published))
    path = tmp_path_factory.mktemp("areas") / "page.html"
    return made, made.report(groups="households", entities="persons").save(path)


@pytest.fixture(scope="module")
def attacked(tmp_path_factory):
    """A release whose regions have names that would like to be markup."""
    folder = tmp_path_factory.mktemp("attacked")
    release = released(NAMES, title=f"Homes {ATTACK}")
    release.save(folder / "release")
    release.report(map=squares(release), groups="homes", entities=ATTACK).save(folder / "report.html")
    return folder


@pytest.fixture(scope="module")
def synthetic(tmp_path_factory):
    folder = tmp_path_factory.mktemp("microdata") / "synthetic"
    how = {"budget": tt.Budget(rho="0.5", delta="1e-6"), "method": "mwem", "options": {"rounds": 3, "empty": True}}
    tt.synthesize(made_up(), **how).save(folder)
    return folder


def test_the_page_opens_without_a_network_and_its_charts_have_marks(opened, demo):
    page = opened(demo / "report.html")
    assert page.title() == "Households of Tallia by size and tenure"
    for table, rows in (("#whole", 15), ("#region-sizes", 15), ("#levels", 3)):
        assert page.locator(f"{table} tbody tr").count() == rows
        assert page.locator(f"{table} svg.bar rect").count() >= rows
    assert page.locator("#whole svg.bar path.sure").count() == 15
    assert page.locator("#drawing path.area").count() == 120
    assert page.locator("#drawing path.area.cnone").count() < 12
    measured = tt.Release.load(demo).measurements.measured
    assert page.locator("#spendings tbody tr").count() >= len(measured)


def test_search_finds_a_region_and_shows_it_against_its_parent(opened, demo):
    page = opened(demo / "report.html")
    county = tt.Release.load(demo).hierarchy.regions.ids[-1]
    page.fill("#search", county)
    assert page.locator("#hits").inner_text() == "1 found"
    page.keyboard.press("Enter")
    assert page.locator("#region-name").inner_text() == f"{county}, county"
    assert page.locator("#region-sizes path.like").count() == 15
    assert page.locator("#path li").count() == 3
    page.fill("#search", "no such place")
    assert "no region" in page.locator("#hits").inner_text()


def test_the_tree_is_walked_by_keyboard_alone(opened, demo):
    page = opened(demo / "report.html")
    page.focus("#path button")
    page.keyboard.press("Enter")
    assert page.locator("#region-name").inner_text() == "Tallia, nation"
    page.focus("#below tbody button")
    page.keyboard.press("Enter")
    assert page.locator("#region-name").inner_text().endswith(", state")
    assert page.locator("#path li").count() == 2


def test_the_tables_to_take_away_and_on_the_page_are_those_of_the_release(opened, demo, tmp_path):
    page = opened(demo / "report.html")
    with page.expect_download() as taken:
        page.click("#get-counts")
    taken.value.save_as(tmp_path / "counts.csv")
    assert (tmp_path / "counts.csv").read_bytes() == (demo / "counts.csv").read_bytes()
    with (demo / "counts.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if (row["region"], row["tenure"]) == ("Tallia", "all")]
    shown = page.locator("#whole tbody tr td.n:nth-child(3)").all_inner_texts()
    assert [int(text.replace(",", "")) for text in shown] == [int(row["count"]) for row in rows]
    page.locator("#path button").first.click()
    page.select_option("#slot", "1")
    shown = page.locator("#region-sizes tbody tr td.n:nth-child(3)").all_inner_texts()
    with (demo / "counts.csv").open(encoding="utf-8", newline="") as file:
        owned = [row["count"] for row in csv.DictReader(file) if (row["region"], row["tenure"]) == ("Tallia", "owned")]
    assert [text.replace(",", "") for text in shown] == owned


ON_A_PHONE = ("#whole", "#region-sizes", "#below", "#area-list", "#differences")


@pytest.mark.parametrize("width", [360, 390])
def test_on_a_phone_every_number_is_on_the_screen_with_its_interval(opened, with_areas, width):
    page = opened(with_areas[1], width=width)
    for table in ON_A_PHONE:
        for cell in page.locator(f"{table} tbody tr").all()[:5]:
            for one in cell.locator("td.n").all()[:3]:
                if one.is_visible():
                    box = one.bounding_box()
                    assert box["x"] >= 0
                    assert box["x"] + box["width"] <= width, table
    assert " to " in page.locator("#below tbody tr td.n").first.inner_text()
    assert " to " in page.locator("#area-list tbody tr td.n").first.inner_text()
    average, median = page.locator("#area-list tbody tr").first.locator("td.n").all()[-2:]
    assert average.inner_text().count(" to ") == 1
    assert not median.is_visible()  # the region's own line has it
    assert "the median size" in page.locator("#region-facts").inner_text()


def test_a_table_that_is_wider_than_the_screen_says_so_and_keeps_its_first_column(opened, with_areas):
    page = opened(with_areas[1], width=390)
    for box in page.locator(".wide:visible").all():
        cut = box.evaluate("box => box.scrollWidth > box.clientWidth + 1")
        cue = box.locator("xpath=preceding-sibling::p[contains(@class, 'swipe')][1]")
        assert cue.is_visible() == cut
    levels = page.locator(".wide", has=page.locator("#levels"))
    assert "cut" in levels.get_attribute("class")
    levels.evaluate("box => { box.scrollLeft = box.scrollWidth; }")
    page.wait_for_function("!document.querySelector('#levels').parentElement.classList.contains('cut')")
    assert page.locator("#levels tbody th").first.bounding_box()["x"] >= 0
    desk = opened(with_areas[1], width=1280)
    assert desk.locator(".swipe:visible").count() == 0


def numbers_of(page, table, column):
    cells = page.locator(f"{table} tbody tr td.n:nth-child({column})").all_inner_texts()
    return [float(text.split("\n")[0].replace(",", "")) for text in cells]


def test_lists_are_sorted_and_searched(opened, with_areas):
    page = opened(with_areas[1])
    table = with_areas[0].area_table().to_pylist()
    totals = {}
    for row in table:
        if row["kind"] == "districts" and row["tenure"] == "all":
            totals[row["area"]] = totals.get(row["area"], 0) + row["count"]
    assert numbers_of(page, "#area-list", 3) == list(totals.values())
    for again, order in ((False, sorted(totals.values())), (True, sorted(totals.values(), reverse=True))):
        page.click("#area-list thead button >> nth=1")
        shown = numbers_of(page, "#area-list", 3)
        assert shown == sorted(totals.values(), reverse=not again)
        assert sorted(shown) == sorted(order)
    assert page.locator("#area-list th").nth(2).get_attribute("aria-sort") == "ascending"
    made, first = with_areas[0], page.locator("#area-list tbody tr").first
    answer = made.ask(tt.Query("median", {area.name: area for area in made.areas}[first.locator("th").inner_text()]))
    low, high = map(answer.shown, answer.guaranteed)
    ends = low if low == high else f"{low} to {high}"
    assert first.locator("td.n").last.inner_text().split() == [*answer.shown(answer.released).split(), *ends.split()]
    page.click("#area-list thead button >> nth=0")
    names = page.locator("#area-list tbody th").all_inner_texts()
    assert names[1:4] == ["District 0", "District 1", "District 2"]
    page.fill("#area-list-find", "district 1")
    assert page.locator("#area-list tbody th").all_inner_texts() == [f"District {n}" for n in (1, *range(10, 20))]
    assert page.locator("#area-list-note").inner_text().startswith("11 of 40.")
    page.select_option("#kind", label="coasts")
    assert page.locator("#area-list tbody th").all_inner_texts() == ["Coast"]
    assert not page.locator("#area-list-find").is_visible()


def test_an_area_is_found_and_shown_with_its_sizes(opened, with_areas):
    page = opened(with_areas[1])
    page.fill("#search", "coast")
    page.keyboard.press("Enter")
    assert page.locator("#region-name").inner_text() == "Coast, coasts"
    rows = [row for row in with_areas[0].area_table().to_pylist() if (row["area"], row["tenure"]) == ("Coast", "all")]
    assert numbers_of(page, "#region-sizes", 3) == [row["count"] for row in rows]
    shown = page.locator("#region-sizes td.ends").all_inner_texts()
    assert shown == [f"{row['lower']:,} to {row['upper']:,}" for row in rows]
    page.fill("#search", ATTACK)
    page.keyboard.press("Enter")
    assert page.locator("#region-name").inner_text() == f"{ATTACK}, districts"


def test_an_attack_in_a_name_is_shown_as_text(opened, attacked, tmp_path):
    page = opened(attacked / "report.html")
    assert page.title() == f"Homes {ATTACK}"
    assert page.locator("h1").inner_text() == f"Homes {ATTACK}"
    assert page.locator("img, body > script + script + script").count() == 0
    for name, shown in zip(NAMES, [*NAMES[:2], "Süd \\u202egnp.exe", *NAMES[3:]], strict=True):
        page.fill("#search", name)
        page.keyboard.press("Enter")
        assert page.locator("#region-name").inner_text() == f"{shown}, county"
    assert page.evaluate("document.querySelector('#area-1 title').textContent").startswith(ATTACK)
    with page.expect_download() as taken:
        page.click("#get-counts")
    taken.value.save_as(tmp_path / "counts.csv")
    assert (tmp_path / "counts.csv").read_bytes() == (attacked / "release" / "counts.csv").read_bytes()


def test_the_pages_policy_stops_what_others_put_into_it(chromium, attacked, tmp_path):
    """A page that somebody changed: scripts and images that are not its own are neither run nor loaded."""
    text = (attacked / "report.html").read_text(encoding="utf-8")
    forged = text.replace("</main>", '<script>document.title="forged"</script><img src="file:///etc/hostname"></main>')
    (tmp_path / "forged.html").write_text(forged, encoding="utf-8")
    context = chromium.new_context(offline=True)
    page, told = context.new_page(), []
    page.on("console", lambda message: told.append(message.text))
    page.goto((tmp_path / "forged.html").as_uri())
    assert page.title() == f"Homes {ATTACK}"
    assert len(told) >= 2
    assert all("Content Security Policy" in text for text in told)
    context.close()


def test_the_map_is_coloured_by_what_is_chosen_with_its_numbers_in_a_table(opened, demo):
    page = opened(demo / "report.html")
    before = page.locator("#drawing path.area").evaluate_all("areas => areas.map((area) => area.getAttribute('class'))")
    page.select_option("#measure", label="share of households of size 1")
    after = page.locator("#drawing path.area").evaluate_all("areas => areas.map((area) => area.getAttribute('class'))")
    assert before != after
    page.click("summary")
    assert page.locator("#map-table tbody tr").count() == 50
    for _ in range(2):
        page.click("#map-table-more")
    assert page.locator("#map-table tbody tr").count() == 120
    assert not page.locator("#map-table-more").is_visible()
    assert "size 1" in page.locator("#map-table thead").inner_text()
    page.locator("#area-7").dispatch_event("click")
    assert page.locator("#region-name").inner_text().endswith(", county")
    assert page.locator("#drawing path.chosen").count() == 1
    assert page.locator("#drawing path.hatched").count() > 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
def test_axe_finds_no_serious_fault_and_nothing_is_wider_than_the_screen(opened, demo, width, scheme):
    from axe_playwright_python.sync_playwright import Axe

    page = opened(demo / "report.html", width=width, color_scheme=scheme, bypass_csp=True)  # which axe-core needs
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    found = Axe().run(page).response["violations"]
    assert [(one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in SERIOUS] == []


def test_without_scripts_the_page_says_so_and_shows_the_rest(opened, demo):
    page = opened(demo / "report.html", java_script_enabled=False)
    assert page.locator("#whole tbody tr").count() == 15
    assert not page.locator("#browser").is_visible()
    assert page.locator("noscript p").first.is_visible()


def test_on_paper_controls_are_gone_and_the_charts_are_there(opened, demo):
    page = opened(demo / "report.html")
    page.emulate_media(media="print")
    assert not page.locator("#search").is_visible()
    assert not page.locator("#get-counts").is_visible()
    assert page.locator("#whole svg.bar").first.is_visible()
    assert page.pdf(format="A4").startswith(b"%PDF")


def test_synthetic_households_have_a_page_without_scripts_that_is_as_accessible(opened, synthetic, tmp_path):
    from axe_playwright_python.sync_playwright import Axe

    path = make_synthesis_page(synthetic).save(tmp_path / "page.html")
    page = opened(path, width=360, bypass_csp=True)
    assert page.locator("table.margin svg.bar").count() > 0
    assert page.locator("h3", has_text="Household 1").count() >= 1
    assert page.evaluate("document.scripts.length") == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    found = Axe().run(page).response["violations"]
    assert [(one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in SERIOUS] == []


def test_a_country_that_is_made_up_has_a_map_of_all_its_counties(tmp_path):
    from tallytree.publish.report.maps import read_map

    country = make_country(tmp_path, households=1000)
    tree = tt.Hierarchy.from_levels(country.regions, ["nation", "state", "county"])
    found = read_map(tmp_path / "counties.geojson", tree)
    assert (len(found.outlines), found.unmatched, found.without) == (120, 0, 0)
