"""`rehead serve`: a finished run behind HTTP, on this machine, with a page to try it."""
