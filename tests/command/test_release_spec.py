from decimal import Decimal
from fractions import Fraction

import pytest

from tallytree import SpecError
from tallytree.command.release_spec import ReleaseSpec
from tallytree.mechanisms import choose
from tallytree.privacy import Neighbours
from tallytree.publish.about import NOT_STATED, About

GOOD = """
[regions]
table = "regions.csv"
levels = ["state", "county"]

[data]
source = "people.csv"
group = "household"
region = "county"
max_size = 4

[privacy]
unit = "one_entity"
epsilon = 0.1
"""


@pytest.fixture
def write(tmp_path):
    (tmp_path / "regions.csv").write_text("state,county\nA,01\nA,02\nB,03\n")
    (tmp_path / "people.csv").write_text("household,county\n1,01\n1,01\n2,02\n3,03\n")

    def write(text):
        path = tmp_path / "release.toml"
        path.write_text(text)
        return path

    return write


def test_a_spec_reads_with_paths_relative_to_itself(write):
    spec = ReleaseSpec.load(write(GOOD))
    data = spec.read()
    assert data.hierarchy.ids == ("total", "A", "B", "01", "02", "03")
    assert data.counts.open_at_the_privacy_border().tolist() == [[0, 1, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]]
    assert spec.budget.amount == Fraction(1, 10)
    assert (spec.name, data.name) == ("people", "people")


def test_the_relation_is_known_without_opening_the_data(write):
    for extra in ("", 'entity = "person"\nrows_per_entity = 3\n', 'quantity = "n"\nquantity_bound = 7\n'):
        text = GOOD.replace("max_size = 4", f"max_size = 4\n{extra}")
        spec = ReleaseSpec.load(write(text))
        (spec.folder / "people.csv").write_text("household,county,person,n\n1,01,7,2\n2,02,8,3\n")
        assert spec.neighbours() == Neighbours.of(spec.read(), spec.unit)


def test_what_is_left_out_is_told_without_a_region_too(write):
    spec = ReleaseSpec.load(write(GOOD.replace('region = "county"\n', "")))
    (spec.folder / "regions.csv").write_text("state,county\nA,01\n")
    assert spec.read().counts.open_at_the_privacy_border().tolist() == [[2, 1, 0, 0]]
    assert spec.left_out() == {"max_size": "0 % of 3 groups with rows (0) have 4 or more"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("max_size", "max_sise"), r"\[data\] unknown key 'max_sise'; did you mean 'max_size'\?"),
        (("[privacy]", "[privcy]"), r"unknown key 'privcy'; did you mean 'privacy'\?"),
        (("epsilon = 0.1", "epsilom = 0.1"), r"\[privacy\] unknown key 'epsilom'; did you mean 'epsilon'\?"),
        (("max_size = 4", 'max_size = "4"'), r"\[data\] max_size: .*integer.*not '4'"),
        (('group = "household"\n', ""), r"\[data\] the key 'group' is missing"),
        (("one_entity", "one_person"), "one_entity"),
        (("[data]", "[data"), "not a valid TOML file"),
        (("epsilon = 0.1", "epsilon = 0.1\n[release]\noptons = {}"), r"\[release\] unknown key 'optons'; did you mean"),
        (("epsilon = 0.1", "epsilon = 0.1\n[release]\noptions = 3"), r"\[release\] options: .*dictionary.*not 3"),
        (('levels = ["state", "county"]', ""), "needs levels"),
        (('levels = ["state", "county"]', 'levels = ["state", "county"]\nname = "x"'), "name needs leaf"),
    ],
)
def test_mistakes_are_named_with_the_nearest_right_key(write, change, message):
    with pytest.raises(SpecError, match=message):
        ReleaseSpec.load(write(GOOD.replace(*change))).hierarchy()


def test_all_mistakes_are_named_at_once(write):
    with pytest.raises(SpecError) as error:
        ReleaseSpec.load(write(GOOD.replace("max_size = 4", "max_sise = 4").replace("unit =", "unitt =")))
    assert str(error.value).count("\n  - ") == 4


def test_numbers_are_exact_decimals(write):
    spec = ReleaseSpec.load(write(GOOD + '\n[release]\nshares = { total = 0.1, state = "1/5", county = 0.7 }\n'))
    assert spec.release.shares == {"total": Decimal("0.1"), "state": "1/5", "county": Decimal("0.7")}


def test_a_mechanisms_options_are_read_as_they_are_written(write):
    assert ReleaseSpec.load(write(GOOD)).release.options is None
    options = 'methods = ["cumulative", "sorted-sizes", "cumulative"]\ntotals_share = 0.1\nlargest_share = "1/7"\n'
    spec = ReleaseSpec.load(write(f'{GOOD}\n[release]\nmechanism = "coc-matching"\n[release.options]\n{options}'))
    assert spec.release.options == {
        "methods": ["cumulative", "sorted-sizes", "cumulative"],
        "totals_share": Decimal("0.1"),
        "largest_share": "1/7",
    }
    settings = choose("coc-matching", spec.neighbours(), spec.release.options).settings
    assert (settings.totals_share, settings.largest_share) == (Fraction(1, 10), Fraction(1, 7))


def test_regions_may_come_from_edges_or_codes(write):
    edges = GOOD.replace('levels = ["state", "county"]', "edges = true")
    spec = ReleaseSpec.load(write(edges))
    (spec.folder / "regions.csv").write_text("child,parent\n01,A\n02,A\n")
    assert spec.hierarchy().ids == ("A", "01", "02")
    codes = GOOD.replace('levels = ["state", "county"]', 'levels = ["state"]\nleaf = "county"\nname = "label"')
    spec = ReleaseSpec.load(write(codes))
    (spec.folder / "regions.csv").write_text("state,county,label\nA,01,One\nB,02,Two\n")
    assert spec.hierarchy().names == ("total", "A", "B", "One", "Two")


def test_a_missing_spec_is_a_clear_error(tmp_path):
    with pytest.raises(SpecError, match="there is no spec"):
        ReleaseSpec.load(tmp_path / "none.toml")


@pytest.mark.parametrize("how", ["itself", "symbolic link", "hard link"])
def test_a_file_of_the_microdata_is_no_prior_no_regions_and_no_list_of_groups(write, how):
    spec = ReleaseSpec.load(write(GOOD + '[plan]\nprior = "older.csv"\n'))
    people, other = spec.folder / "people.csv", spec.folder / "older.csv"
    if how == "itself":
        other = people
        spec = ReleaseSpec.load(write(GOOD + '[plan]\nprior = "people.csv"\n'))
    elif how == "symbolic link":
        other.symlink_to(people)
    else:
        other.hardlink_to(people)
    with pytest.raises(SpecError, match="the prior is a file of the microdata"):
        spec.prior(spec.hierarchy())
    with pytest.raises(SpecError, match="the prior is a file of the microdata"):
        spec.prior(spec.hierarchy(), source=str(other))
    spec = ReleaseSpec.load(write(GOOD.replace("regions.csv", other.name).replace('"state", ', "")))
    with pytest.raises(SpecError, match=r"\[regions\] table is a file of the microdata"):
        spec.hierarchy()
    spec = ReleaseSpec.load(
        write(GOOD.replace("max_size", f'groups = "{other.name}"\ngroups_are_public = true\nmax_size'))
    )
    for use in (spec.public_regions, spec.read):
        with pytest.raises(SpecError, match="groups is the microdata themselves"):
            use()


def test_a_plan_goes_without_the_microdata(write):
    spec = ReleaseSpec.load(write(GOOD + '[plan]\nprior = "households"\n'))
    (spec.folder / "people.csv").unlink()
    assert spec.hierarchy().leaf_count == 3


# ---------------------------------------------------------------- two private files

TWO = GOOD.replace(
    'source = "people.csv"\ngroup = "household"', 'persons = "persons.csv"\nhouseholds = "homes.csv"\nid = "hh"'
)


@pytest.fixture
def two_files(write):
    path = write(TWO)
    (path.parent / "persons.csv").write_text("hh,age\n1,30\n1,31\n2,50\n")
    (path.parent / "homes.csv").write_text("hh,county\n1,01\n2,02\n3,03\n")
    return path


def test_a_spec_reads_persons_and_households(two_files):
    spec = ReleaseSpec.load(two_files)
    data = spec.read()
    assert data.counts.open_at_the_privacy_border().tolist() == [[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]]
    assert (spec.name, data.name, data.leaf_totals) == ("persons", "persons", None)
    assert spec.neighbours() == Neighbours.of(data, spec.unit)
    assert spec.fingerprint() == data.fingerprint()
    assert spec.public_regions()[1] is None  # a plan does not know the number of households
    two_files.write_text(
        TWO.replace("persons =", "source =").replace("households =", "groups =").replace("id =", "group =")
    )
    assert ReleaseSpec.load(two_files).data == spec.data


@pytest.mark.parametrize(
    ("text", "use", "what"),
    [
        (TWO.replace("regions.csv", "homes.csv").replace('"state", ', ""), ReleaseSpec.read, "table"),
        (TWO + '[plan]\nprior = "homes.csv"\n', lambda spec: spec.prior(spec.hierarchy()), "the prior"),
        (TWO + '[by.tenure]\ncodebook = "homes.csv"\ndecided_by = "group"\n', ReleaseSpec.read, "codebook"),
        (TWO + '[areas.zones]\nfile = "homes.csv"\n', ReleaseSpec.check_public, "file"),
    ],
)
def test_the_second_file_is_as_private_as_the_first(two_files, text, use, what):
    two_files.write_text(text)
    with pytest.raises(SpecError, match=f"{what} is a file of the microdata"):
        use(ReleaseSpec.load(two_files))


def test_the_persons_are_not_their_own_households(two_files):
    two_files.write_text(TWO.replace("homes.csv", "persons.csv"))
    with pytest.raises(SpecError, match="groups is the microdata themselves"):
        ReleaseSpec.load(two_files).read()


def test_a_key_is_given_under_one_of_its_names(two_files):
    for line, words in {
        'source = "people.csv"': "persons is another name of source; give only one",
        'groups = "homes.csv"': "households is another name of groups",
        'household = "homes.csv"': "did you mean 'households'",
    }.items():
        two_files.write_text(TWO.replace("max_size", f"{line}\nmax_size"))
        with pytest.raises(SpecError, match=words):
            ReleaseSpec.load(two_files)


# ---------------------------------------------------------------- categories

BY = '\n[by.tenure]\nvalues = ["owned", "rented"]\ndecided_by = "group"\n'


@pytest.fixture
def with_tenure(write):
    def written(by=BY, data=""):
        path = write(GOOD.replace("max_size = 4", f"max_size = 4\n{data}") + by)
        people = "household,county,tenure\n1,01,owned\n1,01,owned\n2,02,rented\n3,03,\n"
        (path.parent / "people.csv").write_text(people)
        (path.parent / "codebook.csv").write_text("attribute,value\nother,x\ntenure,owned\ntenure,rented\n")
        (path.parent / "homes.csv").write_text("household,county\n1,01\n2,02\n3,03\n")
        (path.parent / "listed.csv").write_text("household,county,tenure\n1,01,owned\n2,02,rented\n3,03,owned\n")
        return ReleaseSpec.load(path)

    return written


@pytest.mark.parametrize(
    "groups",
    ["", 'groups = "homes.csv"\ngroups_are_public = true\n', 'groups = "listed.csv"\ngroups_are_public = true\n'],
)
@pytest.mark.parametrize("values", ['values = ["owned", "rented"]', 'codebook = "codebook.csv"'])
def test_a_spec_tells_groups_apart_by_category(with_tenure, values, groups):
    spec = with_tenure(f'\n[by.tenure]\n{values}\ndecided_by = "group"\nother = "rented"\n', groups)
    data = spec.read()
    assert data.hierarchy.by.cells == (("owned",), ("rented",))
    assert data.counts.open_at_the_privacy_border().sum() == 3
    assert spec.neighbours() == Neighbours.of(data, spec.unit)
    tree, totals = spec.public_regions()
    assert tree.ids == data.hierarchy.ids
    assert (totals is None) == (data.leaf_totals is None)


@pytest.mark.parametrize(
    ("by", "words"),
    [
        ('[by.tenure]\nvalues = ["a", "b"]', "decided_by of 'tenure' is missing"),
        ('[by.tenure]\ndecided_by = "group"', "needs values = [...], or a codebook"),
        ('[by.tenure]\nvalues = ["a", "b"]\ncodebook = "codebook.csv"\ndecided_by = "group"', "one of the two"),
        ('[by.kind]\ncodebook = "codebook.csv"\ndecided_by = "group"', "no rows for the attribute 'kind'"),
        ('[by.tenure]\ncodebook = "regions.csv"\ndecided_by = "group"', "no column attribute, value"),
        ('[by.tenure]\ncodebook = "people.csv"\ndecided_by = "group"', "people.csv"),
    ],
)
def test_wrong_categories_in_a_spec_are_refused_with_what_was_expected(with_tenure, by, words):
    with pytest.raises(SpecError) as caught:
        with_tenure(f"\n{by}\n").read()
    assert words in str(caught.value)


def test_another_word_for_who_decides_is_refused_when_the_spec_is_read(with_tenure):
    with pytest.raises(SpecError, match="decided_by"):
        with_tenure('\n[by.tenure]\nvalues = ["a", "b"]\ndecided_by = "house"\n')


@pytest.mark.parametrize(
    ("data", "unit", "words"),
    [
        ('on_spanning_group = "split"\n', "one_group", "were split"),
        ('entity = "person"\nrows_per_entity = 3\n', "one_group", "were dropped"),
    ],
)
def test_a_unit_that_cannot_protect_the_data_is_refused_without_opening_them(write, data, unit, words):
    text = GOOD.replace("max_size = 4", f"max_size = 4\n{data}").replace("one_entity", unit)
    spec = ReleaseSpec.load(write(text))
    (spec.folder / "people.csv").unlink()
    with pytest.raises(SpecError, match=words):
        spec.neighbours()


ABOUT = """
[about]
title = "Homes"
publisher = "Statistics Office"
reference_date = 2025-03-31
"""


def test_what_the_publisher_states_is_read(write):
    spec = ReleaseSpec.load(write(GOOD + ABOUT))
    assert spec.title == "Homes"
    assert spec.about.value() == About("Statistics Office", reference_date="2025-03-31")
    assert ReleaseSpec.load(write(GOOD)).about.value() == NOT_STATED


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f'{ABOUT}\n[release]\ntitle = "Other"\n', r"the title is in \[about\] and in \[release\]"),
        ('[about]\nreference_date = "soon"\n', "reference_date = 'soon' of \\[about\\] is not a date"),
        ('[about]\nlicense = "CC0"\n', "unknown key 'license'; did you mean 'licence'"),
    ],
)
def test_mistakes_in_it_are_named(write, text, said):
    with pytest.raises(SpecError, match=said):
        ReleaseSpec.load(write(GOOD + text))
