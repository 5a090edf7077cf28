"""The page at `/`: HTML, CSS and JavaScript in one document, with a policy that lets the browser load nothing else."""

from __future__ import annotations

import base64
import hashlib
from importlib import resources


def page(package: str = "rehead.use.serve", *, style: str | None = None) -> tuple[str, str]:
    """Return the page of a package and its Content-Security-Policy: only its own style and script, by their hashes.

    `style` names a package whose style comes before its own.
    """
    html, css, js = (_part(package, kind) for kind in ("html", "css", "js"))
    css = css if style is None else _part(style, "css") + css
    policy = (
        f"default-src 'none'; style-src '{_digest(css)}'; script-src '{_digest(js)}'; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return html.replace("/*css*/", css).replace("/*js*/", js), policy


def _part(package: str, kind: str) -> str:
    return (resources.files(package) / f"page.{kind}").read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
