"""`rehead label TEXT --out DIR`: open the project, serve its page."""

from __future__ import annotations

import os
import sys

from rehead.errors import UserError
from rehead.label.options import LabelOptions, check_label
from rehead.use.serve.options import find_token

__all__ = ["LabelOptions", "command"]


def command(options: LabelOptions) -> int:
    """Run the command until a signal ends it."""
    token = find_token(options.token_file)
    check_label(options, token)
    try:
        from rehead.label.app import build
        from rehead.label.opening import open_project
        from rehead.label.service import LabelService
        from rehead.use.serve.server import BACKLOG, bind, serve, set_up_logging, url_of
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.split(".")[0] == "rehead":
            raise
        raise UserError(f"the labelling page needs the package {error.name}: pip install 'rehead[serve]'.") from None

    def say(line: str) -> None:
        if not options.quiet:
            print(line, file=sys.stderr, flush=True)

    with bind(options.host, options.port) as bound, open_project(options, say) as project:
        service = LabelService(project, options)
        guard = build(service, options, token)
        set_up_logging(quiet=options.quiet)
        service.start()
        bound.listen(BACKLOG)
        print(f"labelling {options.out} at {url_of(bound)}", flush=True)
        say("Open that address in a browser. Every label is saved at once. Ctrl-C stops; the same command goes on.")
        serve(guard, service, options, bound)
        count = len(project.labels.labelled())
    say(f"stopped: {options.out} has {count:,} labels.")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # a thread may still compute: ending Python under it would abort the process inside torch
