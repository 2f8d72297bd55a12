"""Export to SDMX-CSV 2.0: tables with codes for keys, and a structure message (SDMX-ML 3.0) with labels.

Codes in SDMX have letters, digits, `_`, `@`, `$` and `-`. Other characters of a region's id are written as `$2f$`,
their number in hexadecimal. So two ids never share a code, and no code begins a formula. Labels are display names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.sax.saxutils import XMLGenerator
from xml.sax.xmlreader import AttributesImpl

from tallytree.core.errors import ReleaseError
from tallytree.core.names import visible
from tallytree.core.progress import Progress, Stage
from tallytree.publish.about import About
from tallytree.publish.release.contents import ReleaseContents
from tallytree.publish.release.release_statement import privacy_note
from tallytree.publish.table import Key, Table

AGENCY, VERSION = "TALLYTREE", "1.0.0"
SCHEMAS = "http://www.sdmx.org/resources/sdmxml/schemas/v3_0"
URN = "urn:sdmx:org.sdmx.infomodel"
STRUCTURE = "structure.xml"
NOT_SHARED = ("UNIT_MEASURE", "KIND", "AREA")  # code lists that differ between tables
MOST_OBSERVATIONS = 20_000_000
# Columns of every such file, and one that SDMX gives a meaning of its own.
TAKEN = ("structure", "structure_id", "structure_name", "action", "series_key", "obs_key", "time_period")


@dataclass(frozen=True)
class Component:
    """A dimension, measure or attribute: either codes (code, label, parent's code or empty) or a number."""

    name: str
    description: str
    codes: tuple[tuple[str, str, str], ...] = ()
    kind: str = "Integer"


TIME = Component("TIME_PERIOD", "the time that the data are about", kind="ObservationalTimePeriod")


@dataclass(frozen=True)
class Flow:
    """A table: the dimensions of its rows, the observed value, and the attributes of each observation."""

    name: str
    label: str
    description: str
    dimensions: tuple[Component, ...]
    value: Component
    attributes: tuple[Component, ...]
    time: str = ""  # the reference date, if it is known: the only code of the dimension of time

    @property
    def components(self) -> tuple[Component, ...]:
        """Return dimensions, attributes and value."""
        return (*self.dimensions, *([TIME] if self.time else []), *self.attributes, self.value)


def write_sdmx_csv(
    release: ReleaseContents, folder: Path, progress: Progress, tables: Sequence[Table]
) -> tuple[str, ...]:
    """Write one file of observations per table and a structure file for all; return the file names."""
    most = max(table.cells for table in tables)
    if most > MOST_OBSERVATIONS:
        raise ReleaseError(
            f"this release has {most:,} observations; SDMX-CSV writes every cell, so the limit is "
            f"{MOST_OBSERVATIONS:,}: use --to csvw, or read its Parquet files"
        )
    names = [STRUCTURE]
    about = release.about
    stated = [f"{name}: {text}." for name, text in (("Source", about.source), ("Licence", about.licence)) if text]
    note = " ".join([*([about.description] if about.description else []), privacy_note(release.measurements), *stated])
    flows = [_flow(table, note, about.reference_date) for table in tables]
    for table, flow in zip(tables, flows, strict=True):
        names.append(f"{table.name}.csv")
        _write(table, flow, folder / names[-1], progress)
    write_structure(flows, release.title, about, folder / STRUCTURE)
    return tuple(names)


def code(text: str) -> str:
    """Return a text as a code: the same text always gives the same code, and two texts give different codes.

    >>> code("13121"), code("OR/Lincoln"), code("-1"), code("$")
    ('13121', 'OR$2f$Lincoln', '$2d$1', '$24$')
    """
    escaped = re.sub(r"[^A-Za-z0-9_@-]|^[-@]", lambda found: f"${ord(found[0]):x}$", text)
    return escaped or "$$"


def component_ids(names: Iterable[str]) -> dict[str, str]:
    """Return component ids in capital letters for column names; duplicates get a number.

    >>> component_ids(["region", "born in", "born-in", "2020"])
    {'region': 'REGION', 'born in': 'BORN_IN', 'born-in': 'BORN_IN_2', '2020': 'C_2020'}
    """
    found: dict[str, str] = {}
    for name in names:
        plain = re.sub(r"[^A-Z0-9_]", "_", name.upper())
        plain = plain if re.match("[A-Z]", plain) else f"C_{plain}"
        number, chosen = 1, plain
        while chosen in found.values():
            number += 1
            chosen = f"{plain}_{number}"
        found[name] = chosen
    return found


# -------------------------------------------------------------------- observations


def _flow(table: Table, note: str, time: str) -> Flow:
    """Return a table's entry in the structure. The first measure is OBS_VALUE; the others become attributes."""
    kept = (*TAKEN, "obs_value", "unit_measure", "conf_level", *(measure.name for measure in table.measures))
    ids = component_ids([*kept, *(dimension.name for dimension in table.dimensions)])
    return Flow(
        name=table.name.upper(),
        label=table.title,
        description=f"{table.description}. {note}",
        dimensions=tuple(
            Component(ids[dimension.name], dimension.description, _codes(dimension)) for dimension in table.dimensions
        ),
        value=Component("OBS_VALUE", table.measures[0].description),
        attributes=(
            *(
                Component(ids[measure.name], measure.description, kind="Decimal" if measure.decimals else "Integer")
                for measure in table.given[1:]
            ),
            Component(ids["unit_measure"], "unit of OBS_VALUE", ((_unit(table), table.measures[0].unit, ""),)),
            Component(ids["conf_level"], "level of confidence of the intervals", kind="Decimal"),
        ),
        time=time,
    )


def _codes(dimension: Key) -> tuple[tuple[str, str, str], ...]:
    codes = [code(one) for one in dimension.codes or ()]
    parents = (-1,) * len(codes) if dimension.parents is None else dimension.parents.tolist()
    above = (codes[parent] if parent >= 0 else "" for parent in parents)
    return tuple(zip(codes, dimension.labels, above, strict=True))


def _unit(table: Table) -> str:
    return table.measures[0].unit.upper()


def _write(table: Table, flow: Flow, path: Path, progress: Progress) -> None:
    import pyarrow as pa
    import pyarrow.csv

    writer, done = None, 0
    for every in table.batches(zeros=True):
        progress(Stage(f"writing {path.name}", done, table.cells))
        done += every.num_rows
        rows = every.filter(every[table.measures[0].name].is_valid())  # an undefined value is no observation
        keys = {
            component.name: _as_codes(rows[dimension.name])
            for component, dimension in zip(flow.dimensions, table.dimensions, strict=True)
        }
        numbers = [rows[measure.name] for measure in table.given]
        columns = {
            "STRUCTURE": pa.repeat(pa.scalar("dataflow"), rows.num_rows),
            "STRUCTURE_ID": pa.repeat(pa.scalar(f"{AGENCY}:{flow.name}({VERSION})"), rows.num_rows),
            "ACTION": pa.repeat(pa.scalar("I"), rows.num_rows),
            **keys,
            **({TIME.name: pa.repeat(pa.scalar(flow.time), rows.num_rows)} if flow.time else {}),
            "OBS_VALUE": numbers[0],
            **{found.name: column for found, column in zip(flow.attributes, numbers[1:], strict=False)},
            flow.attributes[-2].name: pa.repeat(pa.scalar(_unit(table)), rows.num_rows),
            flow.attributes[-1].name: pa.repeat(pa.scalar(str(table.confidence)), rows.num_rows),
        }
        written = pa.table(columns)
        writer = writer or pa.csv.CSVWriter(path, written.schema)
        writer.write_table(written)
    if writer is not None:
        writer.close()


def _as_codes(column: Any) -> Any:
    """Return a column of texts or sizes as codes."""
    import pyarrow as pa

    texts = column.cast(pa.string()).combine_chunks().dictionary_encode()
    codes = pa.array([code(text) for text in texts.dictionary.to_pylist()], pa.string())
    return codes.take(texts.indices)


# -------------------------------------------------------------------- structure


class _Xml:
    """A streaming XML writer, so that no code list is held in memory twice."""

    def __init__(self, writer: XMLGenerator) -> None:
        self.writer = writer

    @contextmanager
    def element(self, name: str, **attributes: str) -> Iterator[None]:
        self.writer.startElement(name, AttributesImpl(attributes))
        yield
        self.writer.endElement(name)

    def text(self, name: str, text: str, **attributes: str) -> None:
        self.writer.startElement(name, AttributesImpl(attributes))
        self.writer.characters(visible(text))
        self.writer.endElement(name)

    def named(self, label: str, description: str = "") -> None:
        for name, text in (("com:Name", label), ("com:Description", description)):
            if text:
                self.text(name, text, **{"xml:lang": "en"})


def write_structure(flows: Sequence[Flow], title: str, about: About, path: Path) -> None:
    """Write the structure message that describes the files of observations."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        writer = XMLGenerator(file, "utf-8", short_empty_elements=True)
        writer.startDocument()
        xml = _Xml(writer)
        spaces = {"mes": "message", "str": "structure", "com": "common"}
        with xml.element("mes:Structure", **{f"xmlns:{short}": f"{SCHEMAS}/{name}" for short, name in spaces.items()}):
            with xml.element("mes:Header"):
                xml.text("mes:ID", "TALLYTREE_EXPORT")
                xml.text("mes:Test", "false")
                xml.text("mes:Prepared", datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
                with xml.element("mes:Sender", id=AGENCY):
                    xml.named(about.publisher)
                    if about.contact:
                        with xml.element("mes:Contact"):
                            xml.named("" if about.has_email else about.contact)
                            if about.has_email:
                                xml.text("mes:Email", about.contact)
            with xml.element("mes:Structures"):
                _code_lists(flows, xml)
                _concepts(flows, title, xml)
                _data_flows(flows, xml)
                with xml.element("str:DataStructures"):
                    for flow in flows:
                        _data_structure(flow, xml)
        writer.endDocument()


def _artefact(name: str) -> dict[str, str]:
    return {"id": name, "agencyID": AGENCY, "version": VERSION}


def _code_lists(flows: Sequence[Flow], xml: _Xml) -> None:
    lists = {_code_list(flow, one): one for flow in flows for one in flow.components if one.codes}
    with xml.element("str:Codelists"):
        for name, component in lists.items():
            with xml.element("str:Codelist", **_artefact(name)):
                xml.named(component.description)
                for code, label, above in component.codes:
                    with xml.element("str:Code", id=code):
                        xml.named(label)
                        if above:
                            xml.text("str:Parent", above)


def _code_list(flow: Flow, component: Component) -> str:
    """Return a code list's name. Tables share all code lists except those of units and areas."""
    return f"CL_{flow.name}_{component.name}" if component.name in NOT_SHARED else f"CL_{component.name}"


def _concepts(flows: Sequence[Flow], title: str, xml: _Xml) -> None:
    with xml.element("str:ConceptSchemes"):
        for flow in flows:
            with xml.element("str:ConceptScheme", **_artefact(f"{flow.name}_CONCEPTS")):
                xml.named(title)
                for component in flow.components:
                    with xml.element("str:Concept", id=component.name):
                        xml.named(component.name.lower().replace("_", " "), component.description)


def _data_flows(flows: Sequence[Flow], xml: _Xml) -> None:
    with xml.element("str:Dataflows"):
        for flow in flows:
            with xml.element("str:Dataflow", **_artefact(flow.name)):
                xml.named(flow.label, flow.description)
                xml.text("str:Structure", f"{URN}.datastructure.DataStructure={AGENCY}:{flow.name}({VERSION})")


def _data_structure(flow: Flow, xml: _Xml) -> None:
    with xml.element("str:DataStructure", **_artefact(flow.name)):
        xml.named(flow.label, flow.description)
        with xml.element("str:DataStructureComponents"):
            with xml.element("str:DimensionList", id="DimensionDescriptor"):
                for place, one in enumerate(flow.dimensions, start=1):
                    with xml.element("str:Dimension", id=one.name, position=str(place)):
                        _meaning(flow, one, xml)
                if flow.time:
                    with xml.element("str:TimeDimension", id=TIME.name):
                        _meaning(flow, TIME, xml)
            with xml.element("str:AttributeList", id="AttributeDescriptor"):
                for one in flow.attributes:
                    with xml.element("str:Attribute", id=one.name, usage="optional"):
                        _meaning(flow, one, xml)
                        with xml.element("str:AttributeRelationship"), xml.element("str:Observation"):
                            pass
            with (
                xml.element("str:MeasureList", id="MeasureDescriptor"),
                xml.element("str:Measure", id=flow.value.name, usage="mandatory"),
            ):
                _meaning(flow, flow.value, xml)


def _meaning(flow: Flow, component: Component, xml: _Xml) -> None:
    """Write a component's concept and its code list or number type."""
    concept = f"{AGENCY}:{flow.name}_CONCEPTS({VERSION}).{component.name}"
    xml.text("str:ConceptIdentity", f"{URN}.conceptscheme.Concept={concept}")
    with xml.element("str:LocalRepresentation"):
        if component.codes:
            codes = f"{AGENCY}:{_code_list(flow, component)}({VERSION})"
            xml.text("str:Enumeration", f"{URN}.codelist.Codelist={codes}")
        else:
            with xml.element("str:TextFormat", textType=component.kind):
                pass
