"""The page at `/`: HTML, CSS and JavaScript in one document, with a policy that lets the browser load nothing else."""

from __future__ import annotations

import base64
import hashlib
from importlib import resources


def page() -> tuple[str, str]:
    """Return the page and its Content-Security-Policy, which allows only its own style and script, by their hashes."""
    folder = resources.files("rehead.use.serve")
    html, css, js = ((folder / f"page.{kind}").read_text(encoding="utf-8") for kind in ("html", "css", "js"))
    policy = (
        f"default-src 'none'; style-src '{_digest(css)}'; script-src '{_digest(js)}'; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return html.replace("/*css*/", css).replace("/*js*/", js), policy


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
