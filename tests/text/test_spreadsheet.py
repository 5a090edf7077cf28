"""Cells that a spreadsheet would compute."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rehead.text.spreadsheet import neutralise


@given(st.text(alphabet="=+-@＝＋－＠\t\r\n'ab1.e 5é"))
@example("=cmd|'/C calc'!A0")
@example("-1+cmd|'/C calc'!A0")
@example("+49 30 1234")
@example("\r=1")
@example("＝cmd()")
@example("٣")
def test_no_cell_begins_like_a_formula(cell: str) -> None:
    """Either it is a number, which computes to itself, or its first character is harmless; nothing else changes."""
    shown = neutralise(cell)
    assert shown in (cell, f"'{cell}")
    if shown[:1] in tuple("=+-@＝＋－＠\t\r\n"):
        assert str(float(shown))
        assert shown[0] in "+-"
    assert shown == cell or cell[0] in "=+-@＝＋－＠\t\r\n"


@pytest.mark.parametrize("number", ["-1", "+3.5", "-1e-5", "0.25", "12"])
def test_numbers_stay_numbers(number: str) -> None:
    assert neutralise(number) == number
