"""Folding generated text: where lines end, and what stays whole."""

from __future__ import annotations

from tactix_codegen.layout import COLUMNS, folded


def squeezed(text: str) -> str:
    return "".join(text.split())


def test_a_long_line_is_folded_where_the_fewest_parentheses_are_open() -> None:
    call = ", ".join(f"inner({i}, {i})" for i in range(6))
    line = f"    void function({call}, {'x' * 30}, {'y' * 30});"
    lines = folded(line).split("\n")
    assert len(lines) == 2
    assert all(len(part) <= COLUMNS for part in lines)
    assert lines[0].endswith("),") or lines[0].endswith("x,")
    assert lines[1].startswith(" " * 12)
    assert squeezed(folded(line)) == squeezed(line)


def test_operators_begin_lines() -> None:
    first, second = folded(f"y = {'a' * 60} + {'b' * 60};").split("\n")
    assert first.endswith("a")
    assert second.lstrip().startswith("+ b")


def test_what_must_be_a_line_stays_one() -> None:
    for line in (
        f"#define LONG {'a, ' * 60}",
        f"x; // {'b, ' * 60}",
        f"asm({chr(34)}{'c, ' * 60}{chr(34)});",
        f"f({'d' * 150});",
        f"m({'e, ' * 60}) \\\\",
    ):
        assert folded(line) == line


def test_an_escaped_quote_does_not_end_a_string() -> None:
    line = f"f({chr(34)}a{chr(92)}{chr(34)}, {'b, ' * 60}{chr(34)});"
    assert folded(line) == line
