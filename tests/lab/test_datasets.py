"""The data sets made in code: the same for the same seed, as large and as shaped as their recipes say."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import tallytree as tt
from tallytree.core.errors import SpecError
from tallytree.lab.blocks import HOUSEHOLDS_AT_A_TIME
from tallytree.lab.datasets import DATASETS, DOMAINS, make, make_households, write_people
from tallytree.lab.nation import SHARES

SMALL = {"census": {}, "taxi": {"zones": 28}, "race": {}, "people": {}, "blocks": {}}
SCALE = {"census": 0.01, "taxi": 0.01, "race": 0.01, "people": 0.0002, "blocks": 0.0005}


def small(name, **options):
    return make(name, scale=SCALE[name], **SMALL[name], **options)


def entities(truth):
    return int((truth.counts.sum(axis=0) * np.arange(truth.first_size, truth.max_size + 1)).sum())


@pytest.fixture(scope="module")
def census():
    return make("census")


# -------------------------------------------------------------------- all of them


@pytest.mark.parametrize("name", DATASETS)
def test_the_same_seed_gives_the_same_data_and_another_seed_others(name):
    first, again, other = small(name, seed=1), small(name, seed=1), small(name, seed=2)
    assert first.hierarchy.ids == again.hierarchy.ids
    assert np.array_equal(first.counts, again.counts)
    assert first.counts.shape != other.counts.shape or not np.array_equal(first.counts, other.counts)


@pytest.mark.parametrize("name", DATASETS)
def test_counts_fit_the_tree_and_are_whole_and_not_negative(name):
    truth = small(name)
    assert truth.hierarchy.depth == (6 if name == "blocks" else 3)
    assert truth.counts.shape == (truth.hierarchy.leaf_count, truth.max_size + 1 - truth.first_size)
    assert truth.counts.dtype == np.int64
    assert truth.counts.min() >= 0
    assert truth.group_sizes().max_size == truth.max_size


@pytest.mark.parametrize("name", DATASETS)
def test_totals_are_public_or_private_as_the_user_says(name):
    public, private = small(name, public_totals=True), small(name, public_totals=False)
    assert (public.public_totals, public.first_size) == (True, 0)
    assert (private.public_totals, private.first_size) == (False, 1)
    assert np.array_equal(public.counts[:, 1:], private.counts)


@pytest.mark.parametrize("name", DATASETS)
def test_every_data_set_tells_its_recipe(name):
    assert "ecipe" in DATASETS[name].recipe or "write_people" in DATASETS[name].recipe
    assert DATASETS[name].about


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(SpecError, match="did you mean 'census'"):
        make("cencus")
    with pytest.raises(SpecError, match="choose from census, taxi, race, people"):
        make("xyz")


def test_households_are_not_counts():
    with pytest.raises(SpecError, match="make_households"):
        make("households")


def test_an_unknown_option_is_answered_with_the_nearest():
    with pytest.raises(SpecError, match="did you mean 'zones'"):
        make("taxi", zone=28)


@pytest.mark.parametrize("scale", [0, -1, float("nan"), float("inf"), "1", True])
def test_a_scale_must_be_positive(scale):
    with pytest.raises(SpecError, match="scale must be a positive number"):
        make("census", scale=scale)


@pytest.mark.parametrize("seed", [-1, 1.5, True])
def test_a_seed_must_be_a_whole_number(seed):
    with pytest.raises(SpecError, match="seed"):
        make("census", seed=seed)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("census", {"variant": "other"}),
        ("census", {"max_size": 0}),
        ("taxi", {"zones": 100}),
        ("taxi", {"cut": 0}),
        ("race", {"max_size": 1.5}),
        ("people", {"max_size": 1}),
    ],
)
def test_an_impossible_option_is_refused(name, options):
    with pytest.raises(SpecError):
        make(name, scale=0.001, **options)


# -------------------------------------------------------------------- census


def test_the_census_has_its_regions_groups_and_sizes(census):
    assert repr(census.hierarchy) == "Hierarchy(nation 1 → state 52 → county 3,144)"
    assert census.counts.sum() == 117_630_445
    assert census.counts.shape == (3144, 1001)
    assert entities(census) == pytest.approx(305_276_358, rel=0.02)
    assert census.public_totals
    assert census.counts[:, 0].sum() == 0


def test_the_census_has_the_national_shares_of_2010(census):
    national = census.counts.sum(axis=0)
    shares = 100 * np.append(national[1:7], national[7:].sum()) / national.sum()
    assert shares == pytest.approx(SHARES, abs=0.05)


def test_the_census_tail_keeps_the_ratio_of_sevens_to_sixes(census):
    national = census.counts.sum(axis=0).astype(float)
    ratios = national[7:12] / national[6:11]
    assert ratios == pytest.approx(ratios[0], rel=0.05)
    assert ratios[0] == pytest.approx(1.9 / 4.5, rel=0.05)


def test_the_census_has_outliers_up_to_a_thousand(census):
    national = census.counts.sum(axis=0)
    assert 40 <= national[60:].sum() <= 50
    assert np.flatnonzero(national)[-1] > 900


def test_shapes_vary_across_states_and_counties(census):
    tree = census.hierarchy
    counts = census.all_levels()
    shares = counts[:, 1] / counts.sum(axis=1)
    states, counties = shares[tree.level_slice(1)], shares[tree.level_slice(2)]
    assert states.std() > 0.02
    within = counties - states[tree.parents[tree.level_slice(2)] - 1]
    large = counts.sum(axis=1)[tree.level_slice(2)] > 10_000  # where sampling alone gives less than 0.005
    assert within[large].std() > 0.015


def test_county_sizes_are_spread_like_real_ones(census):
    assert 1.1 < np.log(census.counts.sum(axis=1)).std() < 1.6


def test_a_small_census_has_fewer_counties_of_full_size(census):
    little = make("census", scale=0.01)
    assert repr(little.hierarchy) == "Hierarchy(nation 1 → state 12 → county 31)"
    assert little.counts.sum() == round(117_630_445 * 0.01)
    assert little.max_size == 1000
    assert little.counts[:, 60:].sum() >= 40


def test_larger_groups_count_as_the_largest_size(census):
    short = make("census", scale=0.01, max_size=7)
    national = short.counts.sum(axis=0)
    assert national[7] / national.sum() == pytest.approx(0.019, abs=0.001)
    assert short.counts.sum() == make("census", scale=0.01).counts.sum()


def test_the_variant_of_kuo_et_al_has_outliers_in_every_state_up_to_ten_thousand():
    truth = make("census", scale=0.01, variant="coc")
    national = truth.counts.sum(axis=0)
    assert truth.max_size == 10_000
    assert truth.counts.sum() == round(240_908_081 * 0.01)
    assert 550 < national[60:].sum() <= 50 * 12
    assert np.flatnonzero(national)[-1] > 9_500


# -------------------------------------------------------------------- taxi and race


def test_taxis_of_the_city_have_six_boroughs_and_263_zones():
    truth = make("taxi", scale=0.05)
    assert repr(truth.hierarchy) == "Hierarchy(city 1 → borough 6 → zone 263)"
    assert truth.max_size == 13_282
    assert entities(truth) == pytest.approx(24_489_743 * 0.05, rel=0.1)


def test_taxis_of_manhattan_have_the_stated_groups_and_pickups_in_dense_sizes():
    truth = make("taxi", zones=28)
    assert repr(truth.hierarchy) == "Hierarchy(Manhattan 1 → area 2 → neighbourhood 28)"
    assert truth.counts.sum() == pytest.approx(360_872, rel=0.05)
    assert entities(truth) == pytest.approx(130_962_398, rel=0.02)
    assert np.all(truth.counts.sum(axis=0)[1:1000] > 0)


def test_a_cut_removes_larger_groups():
    whole, cut = make("taxi", zones=28, scale=0.01), make("taxi", zones=28, scale=0.01, cut=30)
    assert cut.max_size == 30
    assert np.array_equal(cut.counts, whole.counts[:, :31])


def test_most_blocks_are_empty_and_the_rest_have_a_sparse_tail():
    truth = make("race")
    national = truth.counts.sum(axis=0)
    assert national.sum() == 11_155_486
    assert national[0] / national.sum() == pytest.approx(11_011_898 / 11_155_486, abs=0.003)
    assert entities(truth) == pytest.approx(540_383, rel=0.3)
    used = np.flatnonzero(national)
    assert 100 < len(used) < 400
    assert used[-1] > 300


# -------------------------------------------------------------------- people


def test_people_are_written_as_claimed_and_read_back_with_the_same_counts(tmp_path):
    rows = 50_000
    truth = write_people(tmp_path / "people.parquet", rows=rows, seed=3, max_size=12)
    table = pq.read_table(tmp_path / "people.parquet")
    assert table.num_rows == rows == entities(truth)
    assert table.column_names == ["person_id", "household_id", "state", "county"]
    assert pc.count_distinct(table["person_id"]).as_py() == rows
    assert pc.count_distinct(table["household_id"]).as_py() == truth.counts.sum()
    sizes = tt.read(
        tmp_path / "people.parquet",
        group="household_id",
        region="county",
        entity="person_id",
        hierarchy=truth.hierarchy,
        max_size=12,
    )
    assert np.array_equal(sizes.counts.open_at_the_privacy_border(), truth.counts)


def test_people_counted_are_people_written(tmp_path):
    rows = 60_000
    written = write_people(tmp_path / "people.parquet", rows=rows, seed=5)
    assert np.array_equal(make("people", scale=rows / 300_000_000, seed=5).counts, written.counts)


def test_people_come_in_blocks_with_running_household_numbers(tmp_path):
    rows = 3 * HOUSEHOLDS_AT_A_TIME
    truth = write_people(tmp_path / "people.parquet", rows=rows)
    file = pq.ParquetFile(tmp_path / "people.parquet")
    assert file.metadata.num_rows == rows
    assert file.metadata.num_row_groups == 2
    households = file.read(["household_id"])["household_id"]
    assert pc.max(households).as_py() == truth.counts.sum() - 1 == pc.count_distinct(households).as_py() - 1


def test_a_list_of_groups_makes_the_totals_public(tmp_path):
    people, homes = tmp_path / "people.parquet", tmp_path / "homes.parquet"
    truth = write_people(people, rows=10_000, groups=homes)
    assert truth.public_totals
    sizes = tt.read(
        people,
        group="household_id",
        region="county",
        hierarchy=truth.hierarchy,
        groups=homes,
        groups_are_public=True,
        max_size=20,
    )
    assert np.array_equal(sizes.leaf_totals, truth.counts.sum(axis=1))


@pytest.mark.parametrize("rows", [0, -5, 2.5])
def test_people_need_a_whole_number_of_rows(rows, tmp_path):
    with pytest.raises(SpecError, match="rows must be an integer"):
        write_people(tmp_path / "people.parquet", rows=rows)


# -------------------------------------------------------------------- households


def test_the_small_domain_has_the_size_that_the_paper_states():
    assert DOMAINS["acs-small"].size == 262_080
    assert len(DOMAINS["acs"].household) == 10
    assert len(DOMAINS["acs"].person) == 11
    assert DOMAINS["acs"].max_persons == 5


@pytest.mark.parametrize("variant", DOMAINS)
def test_households_and_persons_stay_in_their_domain(variant):
    domain = DOMAINS[variant]
    households, persons = make_households(scale=0.1, variant=variant)
    assert households.num_rows == 7_500
    for table, attributes in ((households, domain.household), (persons, domain.person)):
        for name, codes in attributes.items():
            assert pc.min(table[name]).as_py() >= 0
            assert pc.max(table[name]).as_py() < codes
    members = np.bincount(persons["household_id"].to_numpy(), minlength=7_500)
    assert members.min() == 1
    assert members.max() == domain.max_persons


def test_persons_of_a_household_resemble_each_other():
    _, persons = make_households(scale=0.1)
    home, race = persons["household_id"].to_numpy(), persons["RACE"].to_numpy()
    together = race[1:][home[1:] == home[:-1]] == race[:-1][home[1:] == home[:-1]]
    shuffled = np.random.default_rng(0).permutation(race)
    by_chance = (shuffled == race).mean()
    assert together.mean() > by_chance + 0.2


def test_first_persons_differ_from_others():
    _, persons = make_households(scale=0.1)
    first = pc.equal(persons["person"], 1)
    heads, others = (persons.filter(rows)["AGE"].to_numpy() for rows in (first, pc.invert(first)))
    shares = [np.bincount(ages, minlength=20) / len(ages) for ages in (heads, others)]
    assert np.abs(shares[0] - shares[1]).sum() > 0.1


def test_households_are_the_same_for_the_same_seed():
    first, again, other = (make_households(scale=0.01, seed=seed, variant="acs-small") for seed in (1, 1, 2))
    assert first.persons.equals(again.persons)
    assert first.households.equals(again.households)
    assert not first.households.equals(other.households)
    assert isinstance(first.households, pa.Table)


def test_an_unknown_domain_is_refused():
    with pytest.raises(SpecError, match="acs-small"):
        make_households(variant="small")


@pytest.mark.parametrize("public", [True, False])
def test_tenure_tells_the_same_households_of_a_census_apart(public):
    whole, parts = (
        make("census", scale=0.01, max_size=12, public_totals=public, tenure=tenure) for tenure in (False, True)
    )
    tree = parts.hierarchy
    assert tree.by.columns[0].values == ("owned", "rented")
    assert np.array_equal(tree.over_categories(parts.all_levels()), whole.all_levels())
    owned, rented = parts.all_levels()[tree.level_slice(1)]
    sizes = np.arange(parts.first_size, 13)
    assert rented.sum() < owned.sum()
    assert rented @ sizes / rented.sum() < owned @ sizes / owned.sum()
