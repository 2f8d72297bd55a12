"""What a publisher states about a release or a synthesis: checked, kept, and the same in all files."""

import json
from datetime import date, datetime

import pytest

import tallytree as tt
from tallytree.publish.about import NOT_STATED, About
from tests.publish.report.worlds import released

STATED = {
    "publisher": "Statistics Office",
    "contact": "data@example.org",
    "licence": "CC-BY-4.0",
    "reference_date": "2025-Q1",
    "description": "All homes on one day.",
    "source": "Register of homes",
    "groups": "homes",
    "entities": "people",
}


def test_a_release_keeps_it_in_all_its_files_and_verifies(tmp_path):
    made = released(about=STATED)
    made.save(tmp_path / "release")
    assert tt.verify(tmp_path / "release").ok
    again = tt.Release.load(tmp_path / "release")
    assert again.about == made.about == About(**STATED)
    assert json.loads((tmp_path / "release/privacy.json").read_text())["about"] == STATED
    package = json.loads((tmp_path / "release/datapackage.json").read_text())
    assert package["contributors"] == [{"title": "Statistics Office", "role": "publisher", "email": "data@example.org"}]
    assert package["licenses"] == [{"name": "CC-BY-4.0"}]
    assert package["sources"] == [{"title": "Register of homes"}]
    assert (package["contact"], package["temporal"]) == ("data@example.org", "2025-Q1")
    assert package["description"].startswith("All homes on one day. This release is ")


def test_a_file_that_states_something_else_than_the_others_is_found(tmp_path):
    released(about=STATED).save(tmp_path / "release")
    page = tmp_path / "release/datapackage.json"
    page.write_text(page.read_text().replace("CC-BY-4.0", "CC0-1.0"))
    assert not tt.verify(tmp_path / "release").ok


def test_files_without_it_say_nothing(tmp_path):
    made = released()
    assert made.about == NOT_STATED
    made.save(tmp_path / "release")
    assert "about" not in json.loads((tmp_path / "release/privacy.json").read_text())
    package = json.loads((tmp_path / "release/datapackage.json").read_text())
    assert not {"contributors", "licenses", "sources", "contact", "temporal"} & set(package)


@pytest.mark.parametrize(
    ("given", "kept"),
    [("2025", "2025"), (2025, "2025"), (date(2025, 3, 31), "2025-03-31"), ("2025-03", "2025-03"), ("", "")],
)
def test_a_reference_date_may_be_a_year_a_quarter_a_month_or_a_day(given, kept):
    assert About.of({"reference_date": given}).reference_date == kept


@pytest.mark.parametrize(
    "wrong",
    [
        {"reference_date": "2025-02-30"},
        {"reference_date": "2025-13"},
        {"reference_date": "2025-Q5"},
        {"reference_date": "last year"},
        {"reference_date": datetime(2025, 1, 1)},
        {"reference_date": True},
        {"publisher": 3},
        {"publisher": "x" * 10_001},
        {"publisher": "\ud800"},
        {"licence": None},
        {"groups": " "},
        {"entities": "x" * 61},
    ],
)
def test_what_is_no_date_or_text_is_refused(wrong):
    with pytest.raises(tt.SpecError, match=next(iter(wrong))):
        About.of(wrong)


def test_its_words_are_those_of_the_report_unless_others_are_given():
    made = released(about=STATED)
    assert "How many homes there are of each size" in made.report().html
    html = made.report(groups="dwellings").html
    assert "How many dwellings there are of each size" in html
    assert "about any one of the people" in html


def test_answers_and_displays_use_its_words():
    made = released(about=STATED)
    assert made.ask(tt.Query(), typical=False).question.startswith("homes in ")
    assert made.ask(tt.Query("share", sizes=">=2"), typical=False).question.endswith(
        f"among the homes in {made.hierarchy.names[0]}"
    )
    assert made.ask(tt.Query("median"), typical=False).question.startswith("median size of the homes in ")
    assert f"{made.total:,} homes with {made.entities[0]:,} people" in repr(made)
    assert "homes in" in made._repr_html_()


def test_an_unknown_key_is_refused_with_the_nearest_one():
    with pytest.raises(tt.SpecError, match=r"did you mean .licence."):
        released(about={"license": "CC-BY-4.0"})


def test_a_resumed_release_keeps_it(tmp_path):
    made = released(about=STATED, keep=tmp_path / "kept")
    assert tt.resume(tmp_path / "kept").about == made.about
