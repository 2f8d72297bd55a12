"""Maps of a release: the right areas and values, hatched where they are uncertain, and names as text."""

import xml.etree.ElementTree as ET

import numpy as np
import pytest

import tallytree as tt
from tallytree.lab.truth import Truth
from tallytree.publish.release.answer import Answer
from tallytree.publish.release.region_map import COLOURS, uncertain

NASTY = '<script>alert("1")</script>&\x1b'
COUNTIES = ["01", "02", NASTY]


def square(place, name, **more):
    ring = [[place, 0], [place + 1, 0], [place + 1, 1], [place, 1], [place, 0]]
    return {
        "type": "Feature",
        "properties": {"code": name},
        "geometry": {"type": "Polygon", "coordinates": [ring]},
    } | more


MAP = {"type": "FeatureCollection", "features": [square(place, name) for place, name in enumerate(COUNTIES)]}


@pytest.fixture(scope="module")
def release():
    tree = tt.Hierarchy.from_levels({"county": COUNTIES}, ["county"])
    counts = np.array([[9000, 100, 0], [100, 9000, 100], [0, 100, 9000]])
    private = Truth("three", tree, counts, public_totals=False).group_sizes()
    return tt.release(private, budget=tt.Budget(epsilon=1), unit="one_entity", title=NASTY, intervals="guaranteed")


def drawn(found):
    """The areas of a map by their titles: colour, and whether they are hatched."""
    areas, last = {}, None
    for path in ET.fromstring(found.svg).iter("{http://www.w3.org/2000/svg}path"):
        if path.get("fill").startswith("url"):
            areas[last] = (areas[last][0], True)
        else:
            last = path[0].text
            areas[last] = (path.get("fill"), False)
    return areas


def test_areas_have_the_colour_value_and_interval_of_their_region(release):
    found = release.map(MAP, 1)
    for name, answer in zip(COUNTIES, found.answers, strict=True):
        asked = release.share(name, 1, typical=False)
        assert (answer.released, answer.guaranteed) == (asked.released, asked.guaranteed)
    titles = drawn(found)
    assert len(titles) == 3
    assert [colour for colour, _ in titles.values()] == [COLOURS[4], COLOURS[0], COLOURS[0]]
    assert not any(hatched for _, hatched in titles.values())
    assert next(iter(titles)).startswith("01: 9")


def test_without_sizes_it_is_the_mean_and_a_kind_can_be_asked_for(release):
    means = [answer.released for answer in release.map(MAP).answers]
    assert means == sorted(means)
    assert [answer.kind for answer in release.map(MAP, "1-2", kind="sum").answers] == ["sum"] * 3


def test_names_are_text_whatever_they_hold(release):
    found = release.map(MAP, 1)
    for text in (found.svg, found._repr_html_()):
        assert "<script" not in text
        assert "&lt;script&gt;" in text
        assert "\x1b" not in text


@pytest.mark.parametrize(
    ("released", "ends", "expected"),
    [
        (0.5, (0.21, 0.79), False),
        (0.5, (0.1, 0.79), True),
        (0.5, (0.3, 0.85), True),
        (0.5, None, True),
        (None, (0, 1), True),
    ],
)
def test_it_is_hatched_where_the_interval_reaches_beyond_the_next_colour(released, ends, expected):
    answer = Answer("?", "share", released, None, ends, None, 0.95)
    assert uncertain(answer, (0, 0.2, 0.4, 0.6, 0.8, 1.0)) is expected


def test_a_map_can_be_saved_and_says_what_it_has_no_area_for(release, tmp_path):
    part = {**MAP, "features": [*MAP["features"][:2], square(7, "elsewhere")]}
    found = release.map(part, 1)
    assert "1 areas of the file are not regions" in found._repr_html_()
    assert "1 regions have no area" in found._repr_html_()
    assert ET.parse(found.save(tmp_path / "map.svg")).getroot().tag.endswith("svg")
    with pytest.raises(tt.SpecError, match="svg"):
        found.save(tmp_path / "map.png")


@pytest.mark.parametrize("wrong", ["nowhere.geojson", {}, {"type": "FeatureCollection", "features": []}])
def test_what_is_no_map_is_refused(release, wrong):
    with pytest.raises(tt.SpecError, match="map"):
        release.map(wrong)
