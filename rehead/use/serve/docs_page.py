"""The page at `/docs`: what the schema says, as plain HTML, with nothing to load from anywhere."""

from __future__ import annotations

import json
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
pre { white-space: pre-wrap; overflow-wrap: anywhere; font: .84rem/1.5 ui-monospace, Menlo, Consolas, monospace; }
table { border-collapse: collapse; font-size: .9rem; }
td { padding: .2rem .8rem .2rem 0; vertical-align: baseline; }
summary { cursor: pointer; color: var(--soft); }
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
    body = what.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    rows = "".join(
        f"<tr><td><b>{escape(status)}</b></td><td>{escape(answer.get('description', ''))}</td></tr>"
        for status, answer in sorted(what["responses"].items())
    )
    answer = what["responses"].get("200", {}).get("content", {}).get("application/json", {}).get("schema")
    return (
        f"<section><h2><b>{escape(method)}</b>{escape(path)}</h2>"
        f"<p>{escape(what.get('summary', ''))}. {escape(what.get('description', ''))}</p>"
        + (_fields("What is sent", body) if body else "")
        + (_fields("What comes back", _resolved(answer, schema)) if answer else "")
        + f"<details><summary>Statuses</summary><table>{rows}</table></details></section>"
    )


def _fields(title: str, schema: dict[str, Any]) -> str:
    return f"<details open><summary>{title}</summary><pre>{escape(json.dumps(schema, indent=1))}</pre></details>"


def _resolved(schema: Any, whole: dict[str, Any]) -> Any:  # noqa: ANN401 (any piece of JSON)
    """Put what is referred to in its place."""
    if isinstance(schema, list):
        return [_resolved(each, whole) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _resolved(whole["components"]["schemas"][schema["$ref"].rsplit("/", 1)[-1]], whole)
    return {key: _resolved(value, whole) for key, value in schema.items()}
