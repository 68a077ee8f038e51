"""JSON Schema of types, and the OpenAPI document of a table of routes."""

from __future__ import annotations

import re
import types
from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

Schema = dict[str, Any]
Shape = Any
"""A type; a dict by name, with `?` if it may be missing; a list with the shape of its items; a tuple of choices."""
_NAMES: Final = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null", None: "null"}
_ERROR: Final = {"error": str}


def fields_of(kind: type) -> dict[str, Shape]:
    """The names and types of a dataclass, a named tuple, or a dict with attributes."""
    hints = get_type_hints(kind).items()
    return {name: get_args(it)[0] if issubclass(kind, dict) else it for name, it in hints if name[0] != "_"}


def schema(shape: Shape, named: dict[str, Schema]) -> Schema:
    """The schema of a shape; those of classes are added to `named`."""
    if isinstance(shape, dict):
        properties = {name.rstrip("?"): schema(it, named) for name, it in shape.items()}
        return {"type": "object", "properties": properties, "required": [name for name in shape if name[-1] != "?"]}
    if isinstance(shape, list):
        return {"type": "array", "items": schema(shape[0], named)}
    if isinstance(shape, tuple):
        return {"anyOf": [schema(it, named) for it in shape]}
    if shape in _NAMES:
        return {"type": _NAMES[shape]}
    origin: Any = get_origin(shape)
    kind, inner = origin or shape, get_args(shape)
    if kind in (Union, types.UnionType):
        return {"anyOf": [schema(it, named) for it in inner]}
    if kind is Literal:
        return {"enum": [*inner]}
    if kind in (dict, Mapping):
        return {"type": "object", "additionalProperties": schema(inner[1], named) if inner else {}}
    if kind in (list, tuple) and (kind is list or inner[-1] is ...):
        return {"type": "array", "items": schema(inner[0], named)}
    if kind is tuple:
        return {"type": "array", "prefixItems": [schema(it, named) for it in inner]}
    if not (is_dataclass(kind) or hasattr(kind, "_fields") or kind.__base__ is dict):
        return {}
    if kind.__name__ not in named:
        named[kind.__name__] = {}  # it may contain itself
        named[kind.__name__] |= schema(fields_of(kind), named)
    return {"$ref": f"#/components/schemas/{kind.__name__}"}


def document(routes: Mapping[str, Any], title: str, version: str, base: str) -> Schema:
    """The document; each route has `does`, `reply` and `takes`, the schemas of its parameters by name."""
    named: dict[str, Schema] = {}
    paths = {}
    for path, route in routes.items():
        of_path = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in re.findall(r"{(\w+)}", path)
        ]
        of_query = [{"name": name, "in": "query", "schema": it} for name, it in route.takes.items()]
        replies = {
            code: {"description": says, "content": {"application/json": {"schema": schema(shape, named)}}}
            for code, says, shape in (("200", "OK", route.reply), ("default", "Refused or failed", _ERROR))
        }
        paths[path] = {"get": {"summary": route.does, "parameters": of_path + of_query, "responses": replies}}
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version},
        "servers": [{"url": base or "/"}],
        "security": [{"token": []}, {}],
        "paths": paths,
        "components": {"schemas": named, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }
