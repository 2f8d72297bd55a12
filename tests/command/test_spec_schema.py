"""The JSON Schemas of specs say what the command says, and the tables of the pages are made from the same sections."""

import ast
import json
import re
import tomllib
from copy import deepcopy
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import get_args, get_origin

import pytest
from jsonschema import Draft4Validator, Draft7Validator
from pydantic import ValidationError

from tallytree import SpecError
from tallytree.command.release_spec import ReleaseSpec
from tallytree.command.spec import Section, fields_of, is_for_synthesis, names_of, section_in
from tallytree.command.spec_schema import schema_file, schema_of
from tallytree.command.synthesis_spec import SynthesisSpec
from tallytree.core.errors import TallytreeError
from tallytree.mechanisms import MECHANISMS
from tallytree.synthesis.marginals import METHODS

ROOT = Path(__file__).parents[2]
KINDS = {"release": ReleaseSpec, "synthesis": SynthesisSpec}
SCHEMAS = {kind: schema_of(spec) for kind, spec in KINDS.items()}
VALIDATORS = {kind: (Draft7Validator(schema), Draft4Validator(schema)) for kind, schema in SCHEMAS.items()}

# A value for each key that a section needs.
NEEDED = {
    "attribute": "a", "attributes": ["a"], "file": "a.csv", "group": "g", "household": {"a": "b"}, "id": "h",
    "max_persons": 3, "max_size": 4, "prior": "flat", "region": "c", "release": "r", "role": "r", "sizes": {"a": 1},
    "source": "p.csv", "table": "r.csv", "than": "s", "then": {"a": "b"}, "unit": "one_group",
    "url": "postgresql://host/census",
}  # fmt: skip
VALUES = (
    *(
        True,
        False,
        0,
        1,
        -1,
        Decimal("1.5"),
        "text",
        "",
        "a\0b",
        "https://example",
        "md:x",
        "auto",
        "tallytree",
        "2025-03",
    ),
    *(date(2025, 3, 31), 2025, [], ["a"], [1], [True], [Decimal("0.5")], [["a"]], [{}], [{"attributes": ["a"]}]),
    *({}, {"a": "b"}, {"a": 1}, {"a": ["b"]}, {"a": {}}, {"a": [1, 2]}, {"a": {"attribute": "b"}}, {"a": True}),
    *({"url": "postgresql://host/census", "table": "t"}, {"url": "ftp://host", "table": "t"}, {"table": "t"}),
)
# The command checks these names when it chooses the mechanism or the method, not when it reads the spec.
LATER = {("release", "mechanism"), ("release", "options"), ("synthesis", "method"), ("synthesis", "options")}


def schema_accepts(kind, values):
    """Whether an editor accepts a spec; editors that know draft 4 alone judge as the others do."""
    accepted, *others = (one.is_valid(in_json(values)) for one in VALIDATORS[kind])
    assert others == [accepted]
    return accepted


def in_json(values):
    return json.loads(json.dumps(values, default=as_json))


def as_json(value):
    """What an editor makes of a value of TOML that JSON does not have."""
    return float(value) if isinstance(value, Decimal) else value.isoformat()


def mistakes(kind, values):
    """The kinds of mistakes that the command finds."""
    try:
        KINDS[kind].model_validate(values)
    except ValidationError as error:
        return {mistake["type"] for mistake in error.errors()}
    return set()


def least(section):
    """The values that a section needs."""
    needed = {names_of(*item)[0]: item[1] for item in section.model_fields.items() if item[1].is_required()}
    return {
        name: NEEDED[name] if name in NEEDED else least(section_in(field.annotation)) for name, field in needed.items()
    }


def container(annotation):
    """How a key has its section: itself, by name, or in a list."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return None
    if get_origin(annotation) in (dict, list) and section_in(annotation) is not None:
        return "NAME" if get_origin(annotation) is dict else 0
    return next((container(part) for part in get_args(annotation) if section_in(part) is not None), None)


def sections(section, path=()):
    """Each section of a spec, with its path."""
    yield path, section
    for item in section.model_fields.items():
        name, field = names_of(*item)[0], item[1]
        if (inner := section_in(field.annotation)) is not None:
            among = container(field.annotation)
            yield from sections(inner, (*path, name, *([] if among is None else [among])))


def spec_with(kind, path, content):
    """A spec with the least that it needs, and this content at a path."""

    def build(at):
        if at == path:
            return content
        whole = least(known[at]) if at in known else {}
        part = path[len(at)]
        return [build((*at, 0))] if part == 0 else {**whole, part: build((*at, part))}

    known = dict(sections(KINDS[kind]))
    return build(())


PLACES = [(kind, path, section) for kind, spec in KINDS.items() for path, section in sections(spec)]


def place_name(value):
    return ".".join(map(str, value)) or "whole" if isinstance(value, tuple) else None


@pytest.mark.parametrize("kind", KINDS)
def test_a_schema_is_one_of_draft_4_and_of_draft_7(kind):
    Draft7Validator.check_schema(SCHEMAS[kind])
    Draft4Validator.check_schema({**SCHEMAS[kind], "$schema": Draft4Validator.META_SCHEMA["$schema"]})
    text = json.dumps(SCHEMAS[kind])
    assert "$ref" not in text
    assert "](" not in text  # links lead to pages that an editor does not have


@pytest.mark.parametrize(("kind", "path", "section"), PLACES, ids=place_name)
def test_each_key_and_value_is_judged_as_the_command_judges_it(kind, path, section):
    start = least(section)
    assert schema_accepts(kind, spec_with(kind, path, start))
    refused, fields = 0, fields_of(section)
    for key in fields:
        for value in VALUES:
            content = {name: each for name, each in start.items() if fields[name] is not fields[key]} | {key: value}
            values = spec_with(kind, path, content)
            found, accepted = mistakes(kind, deepcopy(values)), schema_accepts(kind, values)
            refused += not accepted
            if not accepted and (*path, key)[-2:] not in LATER:
                assert found, f"the schema refuses {key} = {value!r}, which the command accepts"
            if found and "value_error" not in found and not isinstance(value, date):  # functions check more
                assert not accepted, f"the command refuses {key} = {value!r}, which the schema accepts: {found}"
    assert refused


@pytest.mark.parametrize(("kind", "path", "section"), PLACES, ids=place_name)
def test_a_misspelt_and_a_missing_key_are_refused_by_both(kind, path, section):
    start = least(section)
    for key in fields_of(section):
        wrong = [{**start, f"{key}x": 1}, {**start, f"_{key}": 1}]
        wrong += [{name: value for name, value in start.items() if name != key}] if key in start else []
        for content in wrong:
            values = spec_with(kind, path, content)
            assert mistakes(kind, deepcopy(values)) & {"extra_forbidden", "missing"}
            assert not schema_accepts(kind, values)


def test_a_key_with_two_names_is_given_under_one_of_them():
    source = {"group": "g", "max_size": 4}
    for given, is_right in (
        ({"source": "a"}, True),
        ({"persons": "a"}, True),
        ({"source": "a", "persons": "a"}, False),
    ):
        values = spec_with("release", ("data",), source | given)
        assert schema_accepts("release", values) == (not mistakes("release", values)) == is_right
    assert not schema_accepts("release", spec_with("release", ("data",), source))


def test_names_of_mechanisms_methods_and_options_are_those_that_the_command_accepts():
    ways = {
        "release": [row.configured for row in MECHANISMS.values() if not row.refused],
        "synthesis": [row.options for row in METHODS.values()],
    }
    names = {
        "release": ["auto", *(row.name for row in MECHANISMS.values() if not row.refused)],
        "synthesis": [*METHODS],
    }
    for kind, key in (("release", "mechanism"), ("synthesis", "method")):
        section = SCHEMAS[kind]["properties"][kind]["properties"]
        assert section[key]["enum"] == names[kind]
        for name in section["options"]["properties"]:
            assert any(takes(way, name) for way in ways[kind])
            assert not any(takes(way, f"{name}x") for way in ways[kind])
        for way in ways[kind]:
            assert not takes(way, "no such option")


def takes(way, name):
    """Whether a mechanism or a method has an option, be its value right or wrong."""
    try:
        way({name: "wrong"})
    except (TallytreeError, TypeError, ValueError) as error:
        return not re.search("no option|takes no options", str(error))
    return True


# -------------------------------------------------------------------- specs that there are


def texts_of_specs():
    """The specs in pages, tests, examples and experiments: texts in Python, and blocks of TOML."""
    files = [
        path for folder in ("tests", "examples", "experiments", "src", "docs") for path in (ROOT / folder).rglob("*.*")
    ]
    for path in [*files, ROOT / "README.md"]:
        if path.suffix not in (".py", ".md", ".toml") or "[privacy]" not in path.read_text(encoding="utf-8"):
            continue
        if path.suffix == ".py":
            yield from texts_in(path.read_text(encoding="utf-8"), path)
        elif path.suffix == ".md":
            for language, block in re.findall(r"^```(python|toml)\n(.*?)^```", path.read_text(), re.M | re.S):
                yield from texts_in(block, path) if language == "python" else [(path, block)]
        else:
            yield path, path.read_text(encoding="utf-8")


def texts_in(code, path):
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "[privacy]" in node.value:
            yield path, node.value


def test_every_spec_of_pages_tests_and_examples_is_accepted():
    pages, accepted = set(), 0
    for path, text in texts_of_specs():
        try:
            values = tomllib.loads(text, parse_float=Decimal)
        except tomllib.TOMLDecodeError:
            continue
        kind = "synthesis" if {"households", "persons", "schema", "regional"} & set(values) else "release"
        is_page = path.suffix == ".md"
        found = VALIDATORS[kind][0].iter_errors(in_json(values))
        errors = [error.message for error in found if error.validator != "required" or not is_page]
        if is_page:
            assert not errors, (path, errors)
            pages.add(path.name)
        elif not mistakes(kind, values):
            assert not errors, (path, errors)
            accepted += 1
    assert pages >= {"release.md", "synthesis.md", "edit-rules.md", "reading.md"}
    assert accepted > 10


# -------------------------------------------------------------------- the command


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "people.csv").write_text("hhid,person_id,county\n1,1,01\n1,2,01\n2,3,02\n")
    (tmp_path / "places.csv").write_text("state,county\nA,01\nA,02\n")
    return tmp_path


@pytest.mark.parametrize("kind", KINDS)
def test_the_command_prints_it(typed, kind, capsys):
    assert json.loads(typed("schema", kind)) == json.loads(re.sub(r"\s+", " ", json.dumps(SCHEMAS[kind])))


def test_another_kind_is_refused_with_the_nearest_one(typed):
    assert "did you mean 'release'?" in typed("schema", "relase", code=2)


def test_init_writes_the_schema_beside_the_spec_and_names_it_in_the_first_line(typed, folder):
    init = ["init", "people.csv", "--yes", "--regions", "places.csv"]
    typed(*init, "--out", "specs/release.toml") if (folder / "specs").mkdir() is None else None
    text = (folder / "specs" / "release.toml").read_text()
    [schema] = re.findall(r"\A#:schema (\S+)\n", text)
    content = json.loads((folder / "specs" / schema).read_text())
    assert schema == f"./{schema_file(ReleaseSpec)}"
    assert Draft7Validator(content).is_valid(tomllib.loads(text))
    assert not Draft7Validator(content).is_valid(tomllib.loads(text.replace("max_size", "max_sise")))
    assert not is_for_synthesis(folder / "specs" / "release.toml")
    typed(*init, "--out", "specs/other.toml")  # the same schema stays
    (folder / "specs" / schema).write_text("{}")
    assert "release.schema.json exists already" in typed(*init, "--out", "specs/third.toml", code=2)
    assert (folder / "specs" / schema).read_text() == "{}"
    assert not (folder / "specs" / "third.toml").exists()


def test_a_message_about_a_missing_key_says_what_it_means():
    with pytest.raises(
        SpecError, match="the key 'group' is missing: the column that says which group a row belongs to"
    ):
        ReleaseSpec.of_text(b'[data]\nsource = "p.csv"\nmax_size = 3\n[privacy]\nunit = "one_group"\n', Path("s.toml"))


# -------------------------------------------------------------------- the pages

BLOCK = re.compile(r"<!-- keys of (\w+): ([\w ]+) -->\n(.*?)<!-- end of keys -->", re.DOTALL)
PAGES = [ROOT / "docs" / name for name in ("release.md", "synthesis.md", "edit-rules.md")]


def words_of(schema):
    """The values of a key, in words."""
    if "anyOf" in schema:
        found = [words_of(each) for each in schema["anyOf"]]
        return " or ".join(dict.fromkeys(word for word in found if word != "integer" or "number" not in found))
    if "enum" in schema:
        return ", ".join(f"`{json.dumps(value)}`" for value in schema["enum"]) if len(schema["enum"]) < 5 else "a name"
    if schema["type"] == "array":
        inner = words_of(schema["items"])
        return f"list of {inner.replace('list', 'lists')}"
    names = {"string": "path" if "minLength" in schema else "text", "object": "table", "boolean": "`true`, `false`"}
    return names.get(schema["type"], schema["type"])


def rows_of(section, schema):
    """The rows of a section's table: keys that are no sections."""
    for item in section.model_fields.items():
        (name, *others), field = names_of(*item), item[1]
        shown = schema["properties"][name]
        if section_in(field.annotation) is None or "anyOf" in shown:
            default = f"; default `{json.dumps(shown['default'])}`" if shown.get("default", False) is not False else ""
            needed = " (needed)" if field.is_required() else ""
            also = "".join(f" or `{other}`" for other in others)
            yield f"| `{name}`{also} | {words_of(shown)}{default}{needed} | {field.description} |"


def inside(schema, part):
    """The schema of a part of a value."""
    schema = next((one for one in schema.get("anyOf", []) if one["type"] in ("object", "array")), schema)
    return schema["properties"][part] if part in schema.get("properties", {}) else (
        schema["additionalProperties"] if part == "NAME" else schema["items"]
    )  # fmt: skip


def tables_of(kind, names):
    """The part of a page that describes sections."""
    described = set()
    for path, section in sections(KINDS[kind]):
        if path and path[0] in names and section.__name__ not in described | {"EngineTable"}:
            described.add(section.__name__)
            schema = SCHEMAS[kind]
            for part in path:
                schema = inside(schema, part)
            schema = next((one for one in schema.get("anyOf", []) if "properties" in one), schema)
            shown = ".".join(str(part) for part in path if part != 0)
            about = next(
                (field.description for field in [field_at(kind, path)] if field.description),
                " ".join(section.__doc__.split()),
            )
            yield "\n".join(
                [
                    f"`[[{shown}]]`: {about}" if path[-1] == 0 else f"`[{shown}]`: {about}",
                    "",
                    "| key | value | meaning |",
                    "|---|---|---|",
                    *rows_of(section, schema),
                    "",
                ]
            )


def field_at(kind, path):
    """The field that has a section."""
    section, found = KINDS[kind], None
    for part in path:
        if part in fields_of(section):
            found = fields_of(section)[part]
            section = section_in(found.annotation)
    return found


def with_tables(text):
    """A page with the tables that the sections give; write it if the test below fails."""
    return BLOCK.sub(
        lambda found: (
            f"<!-- keys of {found[1]}: {found[2]} -->\n\n"
            + "\n".join(table for name in found[2].split() for table in tables_of(found[1], [name]))
            + "\n<!-- end of keys -->"
        ),
        text,
    )


def test_the_tables_of_the_pages_are_made_from_the_sections():
    listed = {kind: set() for kind in KINDS}
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert text == with_tables(text), f"write {page.name} with `with_tables`"
        for kind, names, _ in BLOCK.findall(text):
            listed[kind] |= set(names.split())
    assert listed["release"] == {*fields_of(ReleaseSpec)}
    assert listed["synthesis"] | {"about"} == {*fields_of(SynthesisSpec)}
