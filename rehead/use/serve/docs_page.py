"""The page at `/docs`: what the schema says, as plain HTML, with nothing to load from anywhere."""

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
    """Write the page for a schema."""
    sections = [
        _section(method.upper(), path, what, schema)
        for path, methods in schema["paths"].items()
        for method, what in methods.items()
    ]
    about = schema["info"]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<title>{escape(about['title'])}: what can be asked for</title><style>{STYLE}</style></head><body>"
        f"<h1>What can be asked for</h1><p>{escape(about['description'])}</p>"
        '<p>The same for programs: <a href="/openapi.json">/openapi.json</a>. To try it: <a href="/">the page</a>.</p>'
        f"{''.join(sections)}</body></html>"
    )


def _section(method: str, path: str, what: dict[str, Any], schema: dict[str, Any]) -> str:
    asked = what.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    answer = what["responses"]["200"].get("content", {}).get("application/json", {}).get("schema")
    statuses = "".join(
        f"<tr><td><b>{escape(status)}</b></td><td>{escape(each.get('description', ''))}</td></tr>"
        for status, each in sorted(what["responses"].items())
    )
    return (
        f"<section><h2><b>{escape(method)}</b>{escape(path)}</h2>"
        f"<p>{escape(what['summary'])}. {escape(what.get('description', ''))}</p>"
        + (_table("What is sent", asked, schema) if asked else "")
        + (_table("What comes back", answer, schema) if answer else "")
        + f"<details><summary>Statuses</summary><table>{statuses}</table></details></section>"
    )


def _table(title: str, schema: dict[str, Any], whole: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(name)}</code></td><td>{escape(kind)}</td><td>{escape(description)}</td></tr>"
        for name, kind, description in _fields(schema, whole)
    )
    return f"<h3>{title}</h3><table>{rows}</table>"


def _fields(schema: dict[str, Any], whole: dict[str, Any], before: str = "") -> list[tuple[str, str, str]]:
    """List the fields of an object, and those of the objects in it: name, what it is, what it means."""
    rows = []
    for name, field in _named(schema, whole).get("properties", {}).items():
        field = _named(field, whole)
        needed = ", needed" if name in schema.get("required", []) and not before and "oneOf" not in schema else ""
        rows.append((before + name, _kind(field) + needed, field.get("description", "")))
        inner = _named(field.get("items", {}), whole)
        if inner.get("properties"):
            rows += _fields(inner, whole, f"{before}{name}[].")
    return rows


def _named(schema: dict[str, Any], whole: dict[str, Any]) -> dict[str, Any]:
    """Give the schema that is referred to."""
    found: dict[str, Any] = (
        whole["components"]["schemas"][schema["$ref"].rsplit("/", 1)[-1]] if "$ref" in schema else schema
    )
    return found


def _kind(field: dict[str, Any]) -> str:
    """Say in a few words what a field may be."""
    if "anyOf" in field:
        return " or ".join(_kind(each) for each in field["anyOf"])
    words = {
        "string": "text",
        "array": "list",
        "integer": "whole number",
        "null": "null",
        "boolean": "true or false",
    }
    kind: str = words.get(field.get("type", ""), field.get("type", "object"))
    if "maxLength" in field:
        kind += f", up to {field['maxLength']:,} characters"
    if "maxItems" in field:
        kind += f", {field['minItems']} to {field['maxItems']:,}"
    if "maximum" in field:
        least = field.get("minimum", field.get("exclusiveMinimum"))
        kind += f", {least:,.16g} to {field['maximum']:,.16g}"
    return kind + (f"; usual {field['default']}" if field.get("default") not in (None, "") else "")
