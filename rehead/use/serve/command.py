"""`rehead serve RUN`: check, load, listen."""

from __future__ import annotations

import os
import sys

from rehead.errors import UserError
from rehead.use.serve.options import ServeOptions, check_options, find_token

__all__ = ["ServeOptions", "command"]


def command(options: ServeOptions) -> int:
    """Run the command; return 0 if everything was answered, else what a shell says of a process ended by a signal."""
    token = find_token(options.token_file)
    check_options(options, token)
    try:
        from rehead.use.serve.app import build
        from rehead.use.serve.server import BACKLOG, address, bind, serve, set_up_logging
        from rehead.use.serve.service import Service
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.split(".")[0] == "rehead":
            raise
        raise UserError(f"serving needs the package {error.name}: pip install 'rehead[serve]'.") from None
    with bind(options.host, options.port) as taken:
        service = Service.open(options.run, options)
        guard = build(service, options, token)
        set_up_logging(quiet=options.quiet)
        taken.listen(BACKLOG)  # whoever reads the next line may connect at once
        print(f"serving {options.run} at {address(taken)}", flush=True)
        if not options.quiet:
            print(f"it can: {', '.join(service.can)}. Ctrl-C ends it.", file=sys.stderr, flush=True)
        signum = serve(guard, service, options, taken)
    code = 0
    if guard.given_up:
        code = 128 + signum
        print(f"ended: for {guard.given_up:,} of the requests that were accepted there was no time.", file=sys.stderr)
    elif not options.quiet:
        print("ended: everything that was accepted has been answered.", file=sys.stderr)
    if not service.ended:  # torch must not be taken down while a thread computes with it: that aborts the process
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code
