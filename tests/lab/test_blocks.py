import numpy as np
import pyarrow.parquet as pq
import pytest

from tallytree import SpecError
from tallytree.command.release_spec import ReleaseSpec
from tallytree.lab.blocks import BLOCKS, EMPTY, LEVELS, Blocks, blocks, country, write_country

SCALE = 1 / 1000


def test_a_country_has_the_outline_of_its_scale():
    truth = blocks(scale=SCALE)
    assert truth.hierarchy.levels == LEVELS
    assert np.diff(truth.hierarchy.level_starts).tolist() == [1, 3, 3, 85, 240, 8100]
    assert truth.counts.sum() == 117_000
    empty = np.mean(truth.counts.sum(axis=1) == 0)
    assert EMPTY <= empty < EMPTY + 0.1  # some others have nobody by chance
    sizes = truth.counts.sum(axis=0) / truth.counts.sum()
    assert np.allclose(sizes[:4], [0.267, 0.328, 0.161, 0.134], atol=0.03)


def test_all_regions_of_the_full_country_have_codes_of_one_length():
    places, households, _ = country(1 / 50, 0)
    assert (len(places.weights), households) == (BLOCKS // 50, 117_000_000 // 50)
    assert isinstance(places, Blocks)
    for level, digits in zip(range(1, 6), np.cumsum([2, 3, 6, 2, 4]), strict=True):
        codes = places.codes(level).to_pylist()
        assert {len(code) for code in codes} == {digits}
        assert len(set(codes)) == len(codes)
        assert codes == sorted(codes)


def test_what_is_written_is_what_is_counted_and_read_back(tmp_path):
    told = []
    made = write_country(tmp_path, scale=SCALE, seed=3, progress=told.append)
    truth = blocks(scale=SCALE, seed=3)
    rows = pq.read_table(made.people)
    assert rows.num_rows == made.persons
    assert made.households == truth.counts.sum() == told[-1].done == told[-1].of
    spec = ReleaseSpec.load(made.spec)
    sizes = spec.read()
    assert sizes.hierarchy.ids == truth.hierarchy.ids
    assert np.array_equal(sizes.counts.open_at_the_privacy_border(), truth.counts)


@pytest.mark.parametrize("scale", [0, -1, True, "1"])
def test_a_scale_is_a_positive_number(scale):
    with pytest.raises(SpecError, match="scale must be a positive number"):
        blocks(scale=scale)
