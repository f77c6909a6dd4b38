"""Names and texts as C takes them."""

from __future__ import annotations

import pytest

from tactix.base.errors import InvalidArgument
from tactix_ship.c_library.names import identifiers, library_name, literal, name_from, named, remark


@pytest.mark.parametrize(
    "name", ["", "Net", "1net", "net-1", "math", "lib", "context", "é", "a" * 65]
)
def test_names_that_c_does_not_take_are_refused(name: str) -> None:
    with pytest.raises(InvalidArgument, match="--name"):
        library_name(name)


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("ResNet-50 v2", "resnet_50_v2"),
        ("50", "net_50"),
        ("日本", "net"),
        ("bert.base", "bert_base"),
    ],
)
def test_names_are_made_of_files(file: str, name: str) -> None:
    assert name_from(file) == name


def test_tensors_have_identifiers_of_their_own() -> None:
    assert identifiers(["past.key", "past_key", "", "x/0", "X:0"]) == [
        "past_key",
        "past_key_1",
        "2",
        "x_0",
        "x_0_4",
    ]


def test_text_stays_what_it_is_in_c() -> None:
    assert literal('a"\\?\n') == r'"a\"\\\?\012"'
    assert literal("é") == r'"\303\251"'
    assert remark("a */ b /* c\n") == r"a * / b / * c\n"


def test_the_name_of_a_library_takes_the_place_of_lib() -> None:
    text = "lib_run LIB_OK lib.h LIB_H calibre alib_x liberty"
    assert named(text, "net") == "net_run NET_OK net.h NET_H calibre alib_x liberty"
