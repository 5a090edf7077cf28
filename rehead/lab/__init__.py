"""The lab: the five questions of the classic experiment, answered from a live run, in one page."""
