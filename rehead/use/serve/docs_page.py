"""The page at `/docs`: the OpenAPI schema as plain HTML that loads nothing from elsewhere."""

from __future__ import annotations

from html import escape
from typing import Any

STYLE = """
:root { color-scheme: light dark; --ground: #fbfaf7; --card: #fff; --ink: #1f2a33; --soft: #5b6872; --line: #e3e0d8;
  --accent: #0b6bb0; }
@media (prefers-color-scheme: dark) { :root { --ground: #14181c; --card: #1b2127; --ink: #e7ebee; --soft: #a0abb4;
  --line: #2f373f; --accent: #5db3f5; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 52rem; padding: 1.5rem 1rem 4rem; background: var(--ground); color: var(--ink);
  font: 16px/1.55 system-ui, sans-serif; }
a { color: var(--accent); }
section { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: .4rem 1rem 1rem;
  margin: 1rem 0; }
h2 { font: 600 1.05rem ui-monospace, Menlo, Consolas, monospace; margin: .8rem 0 .3rem; }
h2 b { color: var(--accent); margin-right: .6em; }
h3 { font-size: .88rem; color: var(--soft); margin: 1rem 0 .2rem; }
code { font: .88rem ui-monospace, Menlo, Consolas, monospace; overflow-wrap: anywhere; }
table { border-collapse: collapse; font-size: .92rem; width: 100%; table-layout: fixed; }
td { padding: .3rem .8rem .3rem 0; vertical-align: baseline; border-top: 1px solid var(--line);
  overflow-wrap: anywhere; }
td:first-child, td:nth-child(2):not(:last-child) { width: 29%; }
summary { cursor: pointer; color: var(--soft); font-size: .88rem; margin-top: .8rem; }
"""


def docs_page(schema: dict[str, Any]) -> str:
    """Render a schema."""
    sections = [
        _section(method.upper(), path, operation, schema)
        for path, operations in schema["paths"].items()
        for method, operation in operations.items()
    ]
    info = schema["info"]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<title>{escape(info['title'])}: API reference</title><style>{STYLE}</style></head><body>"
        f"<h1>API reference</h1><p>{escape(info['description'])}</p>"
        '<p>OpenAPI schema: <a href="/openapi.json">/openapi.json</a>. <a href="/">Try it in the browser</a>.</p>'
        f"{''.join(sections)}</body></html>"
    )


def _section(method: str, path: str, operation: dict[str, Any], schema: dict[str, Any]) -> str:
    request, response = (
        each.get("content", {}).get("application/json", {}).get("schema")
        for each in (operation.get("requestBody", {}), operation["responses"]["200"])
    )
    statuses = "".join(
        f"<tr><td><b>{escape(status)}</b></td><td>{escape(each.get('description', ''))}</td></tr>"
        for status, each in sorted(operation["responses"].items())
    )
    return (
        f"<section><h2><b>{escape(method)}</b>{escape(path)}</h2>"
        f"<p>{escape(operation['summary'])}. {escape(operation.get('description', ''))}</p>"
        + (_table("Request body", request, schema) if request else "")
        + (_table("Response body", response, schema) if response else "")
        + f"<details><summary>Status codes</summary><table>{statuses}</table></details></section>"
    )


def _table(title: str, schema: dict[str, Any], whole: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(name)}</code></td><td>{escape(kind)}</td><td>{escape(description)}</td></tr>"
        for name, kind, description in _fields(schema, whole)
    )
    return f"<h3>{title}</h3><table>{rows}</table>"


def _fields(schema: dict[str, Any], whole: dict[str, Any], before: str = "") -> list[tuple[str, str, str]]:
    """List the fields of an object and of the objects nested in it: name, type, description."""
    rows = []
    for name, field in _resolved(schema, whole).get("properties", {}).items():
        field = _resolved(field, whole)
        required = ", required" if name in schema.get("required", []) and not before and "oneOf" not in schema else ""
        rows.append((before + name, _type(field) + required, field.get("description", "")))
        inner = _resolved(field.get("items", {}), whole)
        if inner.get("properties"):
            rows += _fields(inner, whole, f"{before}{name}[].")
    return rows


def _resolved(schema: dict[str, Any], whole: dict[str, Any]) -> dict[str, Any]:
    """Follow a reference to a schema of the components."""
    found: dict[str, Any] = (
        whole["components"]["schemas"][schema["$ref"].rsplit("/", 1)[-1]] if "$ref" in schema else schema
    )
    return found


def _type(field: dict[str, Any]) -> str:
    """Describe the type of a field, its range and its default."""
    if "anyOf" in field:
        return " or ".join(_type(each) for each in field["anyOf"])
    kind: str = field.get("type", "object")
    if "maxLength" in field:
        kind += f", up to {field['maxLength']:,} characters"
    if "maxItems" in field:
        kind += f", {field['minItems']} to {field['maxItems']:,}"
    if "maximum" in field:
        lowest = field.get("minimum", field.get("exclusiveMinimum"))
        kind += f", {lowest:,.16g} to {field['maximum']:,.16g}"
    return kind + (f"; default {field['default']}" if field.get("default") not in (None, "") else "")
