"""Maps: areas are matched with regions, drawn where they are, and what is no map is refused in words."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tallytree as tt
from tallytree.demo.country import country_map
from tallytree.publish.report.maps import THINNING, WIDTH, _thinned, read_map

TREE = tt.Hierarchy.from_levels({"state": ["A", "A", "B"], "county": ["01", "2", "3"]}, ["state", "county"])
RING = [[0, 0], [4, 0], [4, 2], [0, 2], [0, 0]]


def feature(properties, ring=RING, **more):
    return {"type": "Feature", "properties": properties, "geometry": {"type": "Polygon", "coordinates": [ring]}, **more}


def collection(*features):
    return {"type": "FeatureCollection", "features": list(features)}


def test_areas_are_found_by_whichever_property_holds_ids_and_others_are_counted():
    found = read_map(
        collection(feature({"x": "01"}), feature({"x": "3", "name": "A"}), feature({"x": "elsewhere"})), TREE
    )
    assert [TREE.ids[one.region] for one in found.outlines] == ["01", "3"]
    assert (found.level, found.unmatched, found.without) == (2, 1, 1)


def test_areas_are_found_by_id_and_by_numbers_too():
    found = read_map(collection(feature(None, id="01"), feature({}, id=2), feature({}, id=3.0)), TREE)
    assert len(found.outlines) == 3


def test_a_map_of_states_is_one_of_their_level():
    assert read_map(collection(feature({"n": "A"}), feature({"n": "B"})), TREE).level == 1


def test_several_areas_of_one_region_are_one_outline():
    found = read_map(collection(feature({"c": "2"}), feature({"c": "2"}, [[9, 0], [10, 0], [10, 1]])), TREE)
    assert len(found.outlines) == 1
    assert found.outlines[0].path.count("M") == 2


def test_north_is_up_and_the_drawing_is_as_wide_as_it_may_be():
    south, north = [[0, 0], [10, 0], [10, 1], [0, 1]], [[0, 1], [10, 1], [10, 2], [0, 2]]
    found = read_map(collection(feature({"c": "2"}, south), feature({"c": "3"}, north)), TREE)
    tops = {TREE.ids[one.region]: int(one.path.split()[1].split("l")[0]) for one in found.outlines}
    assert tops["3"] < tops["2"]
    assert found.height <= WIDTH * 2 / 10 * 1.01


def test_a_tiny_area_is_still_there():
    tiny = [[0, 0], [1e-6, 0], [1e-6, 1e-6], [0, 0]]
    found = read_map(collection(feature({"c": "2"}), feature({"c": "3"}, tiny)), TREE)
    assert len(found.outlines) == 2


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({}, "FeatureCollection"),
        ({"type": "FeatureCollection", "features": []}, "no features"),
        (collection(feature({"c": "nowhere"})), "no area of the map matches a region"),
        (collection({"type": "Feature", "properties": {"c": "2"}, "geometry": None}), "no outlines"),
        (collection(feature({"c": "2"}, [["x", 0], [1, 1], [2, 2]])), "not pairs of numbers"),
        (collection(feature({"c": "2"}, [[float("nan"), 0], [1, 1], [2, 2]])), "not pairs of numbers"),
    ],
)
def test_what_is_no_map_is_refused_in_words(content, words, tmp_path):
    with pytest.raises(tt.SpecError, match=words):
        read_map(content, TREE)
    (tmp_path / "map.geojson").write_text(json.dumps(content))
    with pytest.raises(tt.SpecError, match=words):
        read_map(tmp_path / "map.geojson", TREE)


def test_a_file_that_is_not_there_or_no_json_is_refused(tmp_path):
    with pytest.raises(tt.SpecError, match="no map at"):
        read_map(tmp_path / "none", TREE)
    (tmp_path / "map").write_text("[" * 100_000)
    with pytest.raises(tt.SpecError, match="is not valid JSON"):
        read_map(tmp_path / "map", TREE)


@given(st.lists(st.tuples(st.floats(0, 1000), st.floats(0, 1000)), min_size=3, max_size=60))
def test_a_thinned_ring_stays_near_all_points_that_it_left_out(points):
    ring = np.array(points)
    kept = _thinned(ring)
    for point in ring:
        away = min(_distance(point, kept[place], kept[place + 1]) for place in range(len(kept) - 1))
        assert away <= THINNING + 1e-6


def _distance(point, start, end):
    line = end - start
    length = line @ line
    part = 0.0 if length == 0 else float(np.clip((point - start) @ line / length, 0, 1))
    return float(np.hypot(*(point - start - part * line)))


def test_the_made_up_country_is_covered_by_its_counties_without_overlap():
    areas = [
        np.array(each["geometry"]["coordinates"][0])
        for each in country_map([str(number) for number in range(37)])["features"]
    ]
    sizes = [_area(ring) for ring in areas]
    whole = _area(np.array(country_map(["all"])["features"][0]["geometry"]["coordinates"][0]))
    assert abs(sum(sizes) - whole) < 1e-2 * whole
    assert min(sizes) > whole / 37 / 3


def _area(ring):
    x, y = ring.T
    return abs(float(x @ np.roll(y, -1) - y @ np.roll(x, -1))) / 2


def test_the_properties_of_a_feature_are_read_a_few_times_however_many_there_are():
    reads = []

    class Properties(dict):
        def get(self, *given):
            reads.append(given)
            return super().get(*given)

        def items(self):
            reads.append("items")
            return super().items()

    names = TREE.ids[TREE.level_slice(TREE.depth - 1)]
    square = {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 0]]]}
    others = {f"p{number}": f"v{number}" for number in range(200)}
    features = [{"type": "Feature", "properties": Properties(others, code=name), "geometry": square} for name in names]
    found = read_map({"type": "FeatureCollection", "features": features}, TREE)
    assert (found.level, found.unmatched) == (TREE.depth - 1, 0)
    assert len(reads) <= 4 * len(names)
