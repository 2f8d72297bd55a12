"""Whether data are accepted is a function of the data and the public options: a random selection has no say in it."""

import secrets
from functools import cache
from hashlib import sha256
from itertools import product

import duckdb
import ibis
import numpy as np
import pyarrow as pa
import pytest

from tallytree import (
    Attribute,
    Has,
    Hierarchy,
    Implies,
    Role,
    Schema,
    Source,
    Structure,
    one_entity,
    read,
    read_households,
)
from tallytree.core.errors import DataError
from tallytree.privacy import Neighbours
from tallytree.tables import InputProblems
from tallytree.tables.contingency import Rows, broken

KEYS = [sha256(bytes([number])).hexdigest() for number in range(6)]
TENURE = {"g": "owned", "h": "rented", "i": "owned"}
EXTRA = [{}, {"quantity": "trips", "quantity_bound": 2}, {"on_spanning_group": "split"}]


def read_worlds(worlds, bound, groups="gh", **options):
    """Read many small tables at once: each is a leaf of its own, with its own groups and entities.

    A world lists its rows as (entity, group, quantity). The public list has all `groups` in every world.
    """
    leaves = [f"w{number}" for number in range(len(worlds))]
    rows = [(leaf, *row) for leaf, world in zip(leaves, worlds, strict=True) for row in world]
    source = {
        "who": pa.array([f"{leaf} {who}" for leaf, who, _, _ in rows], "string"),
        "home": pa.array([f"{leaf} {group}" for leaf, _, group, _ in rows], "string"),
        "leaf": pa.array([leaf for leaf, *_ in rows], "string"),
        "tenure": pa.array([TENURE[group] for _, _, group, _ in rows], "string"),
        "trips": pa.array([trips for *_, trips in rows], "int64"),
    }
    pairs = list(product(leaves, groups))
    listed = {"home": [f"{leaf} {group}" for leaf, group in pairs], "leaf": [leaf for leaf, _ in pairs]}
    return read(
        pa.table(source),
        group="home",
        region="leaf",
        hierarchy=Hierarchy.from_levels({"leaf": leaves}, ["leaf"]),
        max_size=3,
        entity="who",
        rows_per_entity=bound,
        groups=pa.table(listed),
        groups_are_public=True,
        by={"tenure": ["owned", "rented"]},
        decided_by="group",
        **options,
    )


def counts_of(found):
    """The private counts `[worlds, categories, sizes]`."""
    counts = found.counts.open_at_the_privacy_border()
    return counts.reshape(2, -1, counts.shape[1]).transpose(1, 0, 2)


@pytest.mark.parametrize("extra", EXTRA, ids=str)
def test_a_listed_group_that_loses_all_rows_to_the_selection_is_accepted_under_every_key(extra):
    # Entity e is in all three groups and keeps one row, so two of the groups lose all their rows in each world, or one.
    world = [("e", "g", 1), ("e", "h", 2), ("e", "i", 1), ("f", "h", 1)]
    for _ in range(3):
        found = read_worlds([world] * 60, 1, groups="ghi", **extra)
        assert found.listed_totals.tolist() == [3] * 60  # those of the list
        assert counts_of(found).sum(axis=2).tolist() == [[2, 1]] * 60  # every group has the category of its rows


@pytest.mark.parametrize("extra", EXTRA, ids=str)
def test_a_listed_group_without_any_rows_is_refused_under_every_key(extra):
    texts = set()
    for _ in range(3):
        with pytest.raises(InputProblems) as caught:
            read_worlds([[("e", "g", 1), ("e", "h", 1)]] * 20 + [[("e", "g", 1)]], 1, **extra)
        texts.add(str(caught.value))
    assert len(texts) == 1
    assert "1 group" in texts.pop()


def test_a_pair_of_group_and_region_that_is_listed_and_has_no_rows_is_named_as_such():
    listed = pa.table({"home": ["g", "g"], "leaf": ["A", "B"]})
    rows = pa.table({"home": ["g"], "leaf": ["A"], "tenure": ["owned"]})
    options = {"group": "home", "region": "leaf", "max_size": 2, "groups": listed, "on_spanning_group": "split"}
    options["groups_are_public"] = True
    with pytest.raises(InputProblems) as caught:
        read(rows, **options, by={"tenure": ["owned", "rented"]}, decided_by="group")
    (problem,) = caught.value.problems
    assert "1 group has no entities" in problem.text


@cache
def neighbouring_worlds(trips):
    """All pairs of small valid tables of which the second lacks the entity e."""
    own = list(product(range(3), repeat=2))
    pairs = []
    for e, f, d in product(own, own, [(0, 0), (1, 0), (0, 1)]):
        if not sum(e) or not (f[0] + d[0]) or not (f[1] + d[1]):
            continue  # a listed group would be empty without e: such tables are not valid
        world = [
            (who, group, trips if copy else 1)
            for who, numbers in (("e", e), ("f", f), ("d", d))
            for group, number in zip("gh", numbers, strict=True)
            for copy in range(number)
        ]
        pairs.append((world, [row for row in world if row[0] != "e"]))
    return pairs


@pytest.mark.parametrize(("bound", "trips"), [(1, None), (2, None), (1, 2)])
def test_under_each_key_neighbours_with_a_list_and_a_selection_are_within_the_sensitivities(monkeypatch, bound, trips):
    pairs = neighbouring_worlds(trips or 1)
    options = {} if trips is None else {"quantity": "trips", "quantity_bound": trips}
    worst = dict.fromkeys(("counts", "at_least", "totals", "sorted_sizes", "entities"), (0, 0))
    for key in KEYS:
        monkeypatch.setattr(secrets, "token_hex", lambda size, key=key: key)
        found = [read_worlds(worlds, bound, **options) for worlds in zip(*pairs, strict=True)]
        assert np.array_equal(found[0].listed_totals, found[1].listed_totals)
        one, other = map(counts_of, found)
        assert np.array_equal(one.sum(axis=2), other.sum(axis=2))  # no group changes its category
        views = {"counts": lambda counts: counts, "totals": lambda counts: counts.sum(axis=2, keepdims=True)}
        views["at_least"] = lambda counts: np.flip(np.flip(counts, 2).cumsum(axis=2), 2)
        views["entities"] = lambda counts: (counts * np.arange(1, 4)).sum(axis=2, keepdims=True)
        # There is one group in each category, so the sorted list of sizes is its size.
        views["sorted_sizes"] = views["entities"]
        for view, of in views.items():
            change = np.abs(of(one) - of(other)).reshape(len(pairs), -1)
            l1, l2 = int(change.sum(axis=1).max()), int((change**2).sum(axis=1).max())
            worst[view] = max(worst[view][0], l1), max(worst[view][1], l2)
    relation = Neighbours.of(found[0], one_entity())
    for view, (l1, l2) in worst.items():
        stated = relation.sensitivity(view)
        assert l1 <= stated.l1
        assert l2 <= stated.l2_squared
    assert worst["at_least"][0] == relation.sensitivity("at_least").l1  # the worst case is among the pairs


# -------------------------------------------------------------------- rows that change from query to query


def check_one_state(execute, table, view, source):
    """Make a view that is at every query in one of two states, and see that the count is always of the state checked.

    In the valid state all persons of `table` (person, home, county) are different and live in county 1. In the other
    one they are all the same and live in county 2. Rows in county 2 must never be counted.
    """
    execute(
        f"create view {view} as select case when bad then 1 else person end as person, home, "
        f"case when bad then '2' else '1' end as county from {table}, "
        "(select random() < 0.5 as bad limit 1) as state"
    )
    execute("commit")
    tree = Hierarchy.from_levels({"county": ["1", "2"]}, ["county"])
    options = {"group": "home", "region": "county", "hierarchy": tree, "max_size": 3, "entity": "person"}
    seen = {"refused": 0, "counted": 0}
    for _ in range(40):  # both states are seen but for a chance of 2e-12
        try:
            found = read(source(), **options)
        except DataError:  # of the bad state: the checks that say what is wrong may see the other one
            seen["refused"] += 1
        else:
            seen["counted"] += 1
            assert found.counts.open_at_the_privacy_border().tolist() == [[1, 1, 0], [0, 0, 0]]
    assert all(seen.values())


@pytest.mark.parametrize("through", ["file", "ibis"])
def test_a_view_that_changes_at_every_query_is_checked_and_counted_in_one_state(tmp_path, through):
    path = tmp_path / "people.duckdb"
    with duckdb.connect(path) as connection:
        connection.execute(
            "create table people as select * from (values (1, 'a'), (2, 'a'), (3, 'b')) as t(person, home)"
        )
        connection.execute("begin")
        if through == "file":

            def source():
                connection.close()
                return Source(f"duckdb://{path}", "shifting")
        else:
            engine = ibis.duckdb.from_connection(connection)

            def source():
                return engine.table("shifting")

        check_one_state(connection.execute, "people", "shifting", source)


# -------------------------------------------------------------------- households that are cut

FAMILY = Attribute("family", ("yes", "no"))
PERSON = Attribute("relation", ("head", "child", "other")), Attribute("age", ("young", "old"))
HEAD = Role("head", "exactly one", attribute="relation", values=("head",))
CHILD = Role("child", attribute="relation", values=("child",))


def cut_households(persons, number, rules, *, roles=(HEAD, CHILD), oversize="subsample", most=2):
    """`number` families of these persons (relation, age) each, read with at most `most` of them."""
    schema = Schema((FAMILY,), PERSON, most, Structure(roles, rules))
    homes = pa.table({"home": range(number), "family": ["yes"] * number})
    rows = [(home, *person) for home in range(number) for person in persons]
    columns = dict(zip(("home", "relation", "age"), zip(*rows, strict=True), strict=True))
    return read_households(homes, pa.table(columns), schema=schema, household_id="home", oversize=oversize)


@pytest.mark.parametrize("oversize", ["subsample", "drop"])
def test_a_person_who_breaks_a_rule_is_refused_whether_or_not_it_would_be_kept(oversize):
    persons = [("head", "old"), *[("other", "old")] * 6, ("other", "young")]
    rules = (Implies(role="head", then={"age": "old"}), Implies(when={"relation": "other"}, then={"age": "old"}))
    for _ in range(20):
        with pytest.raises(InputProblems, match="1 household breaks a rule"):
            cut_households(persons, 1, rules, oversize=oversize)


@pytest.mark.parametrize("oversize", ["subsample", "drop"])
def test_a_household_that_keeps_a_rule_is_accepted_whoever_is_left_out_of_it(oversize):
    persons = [("head", "old"), *[("other", "old")] * 6, ("child", "young")]
    found = cut_households(persons, 60, (Has("child", {"family": "yes"}),), oversize=oversize)
    codes = found.codes.open_at_the_privacy_border()
    assert np.diff(codes.starts).tolist() == [2] * 60


@pytest.mark.parametrize("by", ["attribute", "position"])
def test_what_is_kept_of_a_household_keeps_the_rules_about_persons_and_those_in_roles_of_one(by):
    persons = [("head", "old"), ("other", "young"), *[("other", "old")] * 4, ("child", "young")]
    if by == "attribute":
        roles, rules = (HEAD, CHILD), (Implies(when={"relation": "child"}, then={"age": "young"}),)
    else:  # nobody is in the first role here, and the second is still told by the order of persons
        first = Role("first", position=1, household={"family": "no"})
        roles, rules = (first, Role("second", position=2)), (Implies(role="second", then={"age": "young"}),)
    codes = cut_households(persons, 60, rules, roles=roles, most=3).codes.open_at_the_privacy_border()
    for rule in broken(Rows(codes.schema, codes.starts, codes.household, codes.person)):
        assert not rule.households.any()
