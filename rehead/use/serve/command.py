"""`rehead serve RUN`: check the options, load the run, serve it."""

from __future__ import annotations

import os
import sys

from rehead.errors import UserError
from rehead.use.serve.options import ServeOptions, check_server, find_token

__all__ = ["ServeOptions", "command"]


def command(options: ServeOptions) -> int:
    """Run the command; return 0 if every accepted request was answered, else 128 + the number of the signal."""
    token = find_token(options.token_file)
    check_server(options, token)
    try:
        from rehead.use.serve.app import build
        from rehead.use.serve.memory import describe_limits, resident_bytes
        from rehead.use.serve.server import BACKLOG, bind, serve, set_up_logging, url_of
        from rehead.use.serve.service import Service
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.split(".")[0] == "rehead":
            raise
        raise UserError(f"serving needs the package {error.name}: pip install 'rehead[serve]'.") from None
    with bind(options.host, options.port) as bound:
        service = Service.open(options.run, options)
        guard = build(service, options, token)
        set_up_logging(quiet=options.quiet)
        bound.listen(BACKLOG)  # before the next line: whoever reads it may connect at once
        print(f"serving {options.run} at {url_of(bound)}", flush=True)
        if not options.quiet:
            print(f"routes: {', '.join(service.can)}. Press Ctrl-C to stop.", file=sys.stderr)
            names = [] if service.labeller is None else service.labeller.names
            print("\n".join(describe_limits(options, names, resident_bytes())), file=sys.stderr, flush=True)
        signum = serve(guard, service, options, bound)
    code = 0
    if guard.aborted:
        code = 128 + signum
        print(f"stopped: {guard.aborted:,} accepted requests could not be answered in time.", file=sys.stderr)
    elif not options.quiet:
        print("stopped: all accepted requests were answered.", file=sys.stderr)
    if not service.closed:  # a thread still computes: ending Python under it would abort the process inside torch
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code
