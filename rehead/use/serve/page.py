"""The page at `/`: HTML, CSS and JavaScript in one document, with a policy that lets the browser load nothing else."""

from __future__ import annotations

import base64
import hashlib
from importlib import resources

OWN = "rehead.use.serve"


def page(package: str = OWN) -> tuple[str, str]:
    """Return the page of a package and its Content-Security-Policy: only its own style and script, by their hashes.

    Another package's page has the style of this one before its own; all share the form for the token, and requests.
    """
    html, css, js = (_part(package, f"page.{kind}") for kind in ("html", "css", "js"))
    html = html.replace("<!--token-->", _part(OWN, "token.html"))
    css, js = css if package == OWN else _part(OWN, "page.css") + css, _part(OWN, "requests.js") + js
    policy = (
        f"default-src 'none'; style-src '{_digest(css)}'; script-src '{_digest(js)}'; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return html.replace("/*css*/", css).replace("/*js*/", js), policy


def _part(package: str, name: str) -> str:
    return (resources.files(package) / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
