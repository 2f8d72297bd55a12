"""The structure message of SDMX-ML 3.0 for an export: code lists, concepts, data structures and data flows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from xml.sax.saxutils import XMLGenerator
from xml.sax.xmlreader import AttributesImpl

from tallytree.core.names import visible

AGENCY, VERSION = "TALLYTREE", "1.0.0"
SCHEMAS = "http://www.sdmx.org/resources/sdmxml/schemas/v3_0"
URN = "urn:sdmx:org.sdmx.infomodel"


@dataclass(frozen=True)
class Component:
    """A dimension, measure or attribute: with codes (code, label, code above or nothing), or a number."""

    name: str
    description: str
    codes: tuple[tuple[str, str, str], ...] = ()
    kind: str = "Integer"


@dataclass(frozen=True)
class Flow:
    """A table: what its rows are keyed by, what is observed, and what is said of each observation."""

    name: str
    label: str
    description: str
    dimensions: tuple[Component, ...]
    value: Component
    attributes: tuple[Component, ...]

    @property
    def components(self) -> tuple[Component, ...]:
        """All of them."""
        return (*self.dimensions, *self.attributes, self.value)


class _Xml:
    """XML that is written as it goes, so that no list of codes is held twice."""

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


def write_structure(flows: Sequence[Flow], title: str, path: Path) -> None:
    """Write what the files of observations mean."""
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
                    pass
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
    """Tables share their code lists, but for that of units."""
    return f"CL_{flow.name}_UNIT" if component.name == "UNIT_MEASURE" else f"CL_{component.name}"


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
    """The concept behind a component, and its code list or kind of number."""
    concept = f"{AGENCY}:{flow.name}_CONCEPTS({VERSION}).{component.name}"
    xml.text("str:ConceptIdentity", f"{URN}.conceptscheme.Concept={concept}")
    with xml.element("str:LocalRepresentation"):
        if component.codes:
            codes = f"{AGENCY}:{_code_list(flow, component)}({VERSION})"
            xml.text("str:Enumeration", f"{URN}.codelist.Codelist={codes}")
        else:
            with xml.element("str:TextFormat", textType=component.kind):
                pass
