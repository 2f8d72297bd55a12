"""JSON Schemas of specs, for editors: made from the sections of `spec`, which alone describe sections and keys.

Editors of TOML support draft 4 best. So a schema has no references and only words that draft 4 has too. The command
refuses everything that a schema refuses. It also checks what a schema cannot say, such as files.
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from tallytree.command.spec import Spec, meaning, names_of

DRAFT = "http://json-schema.org/draft-07/schema#"
DROPPED = ("title", "discriminator")  # names of Python classes, and a word that is not of JSON Schema


def schema_file(kind: type[Spec]) -> str:
    """Return the name of a schema's file beside a spec."""
    return f"{kind.KIND}.schema.json"


def schema_content(kind: type[Spec]) -> bytes:
    """Return the content of such a file."""
    return (json.dumps(schema_of(kind), indent=2, ensure_ascii=False) + "\n").encode()


def schema_of(kind: type[Spec]) -> dict[str, Any]:
    """Return the JSON Schema of a kind of spec."""
    made = kind.model_json_schema(schema_generator=_Schemas)
    return {"$schema": DRAFT, "title": f"the spec of a tallytree {kind.KIND}", **_inlined(made, made.pop("$defs"))}


class _Schemas(GenerateJsonSchema):
    """Describe values as TOML has them: decimal numbers are numbers, and no value is null."""

    def decimal_schema(self, schema: Any) -> dict[str, Any]:
        """Return the schema of a number."""
        return {"type": "number"}

    def nullable_schema(self, schema: Any) -> dict[str, Any]:
        """Return the schema of a value that may be left out."""
        return self.generate_inner(schema["schema"])

    def model_schema(self, schema: Any) -> dict[str, Any]:
        """Return the schema of a section. Of a key with several names one may be given."""
        found = super().model_schema(schema)
        for name, field in schema["cls"].model_fields.items():
            first, *others = names_of(name, field)
            for other in others:
                described = {**found["properties"][first], "description": f"another name of `{first}`"}
                found["properties"][other] = described
                found.setdefault("allOf", []).append({"not": {"required": [first, other]}})
            if others and field.is_required():
                found["required"].remove(first)
                found["allOf"].append({"anyOf": [{"required": [each]} for each in (first, *others)]})
        return found

    def default_schema(self, schema: Any) -> dict[str, Any]:
        """Return the schema of a value with a default; a default that TOML cannot have is left out."""
        found, default = self.generate_inner(schema["schema"]), schema.get("default")
        plain = float(default) if isinstance(default, Decimal) else default
        return {**found, "default": plain} if isinstance(plain, str | bool | int | float) else found


def _inlined(schema: Any, definitions: dict[str, Any]) -> Any:
    """Return a schema with each reference replaced by its definition, in the words of draft 4."""
    if isinstance(schema, list):
        return [_inlined(each, definitions) for each in schema]
    if not isinstance(schema, dict):
        return schema
    referred = definitions[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else {}
    found: dict[str, Any] = {}
    for word, value in (referred | schema).items():
        if word == "properties":
            found[word] = {name: _inlined(each, definitions) for name, each in value.items()}
        elif word == "const":
            found["enum"] = [value]
        elif word == "description":
            found[word] = meaning(value)
        elif word not in (*DROPPED, "$ref"):
            found["anyOf" if word == "oneOf" else word] = _inlined(value, definitions)
    return found
