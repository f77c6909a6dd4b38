"""What kernels take beside what programs give, as their PTX tells."""

from __future__ import annotations

import pytest

from tactix_tensorrt.plugin_steps.ptx import unstated

TRITON = b"""
.version 8.7
.target sm_90a
.visible .entry add_kernel(
    .param .u64 .ptr .global .align 1 add_kernel_param_0, // x
    .param .u32 add_kernel_param_1, /* n, ) */
    .param .u64 .ptr .global .align 1 add_kernel_param_2,
    .param .u64 .ptr .global .align 1 add_kernel_param_3,
    .param .u64 .ptr .global .align 1 add_kernel_param_4
)
.reqntid 128
{ ret; }
.visible .entry add_kernel_2( .param .u32 n ) { ret; }
.visible .entry nothing() { ret; }
.visible .entry bare { ret; }
"""


@pytest.mark.parametrize(
    ("name", "given", "nulls"),
    [
        ("add_kernel", 3, 2),
        ("add_kernel", 4, 1),
        ("add_kernel", 5, 0),
        ("add_kernel_2", 1, 0),
        ("nothing", 0, 0),
        ("bare", 0, 0),
        ("elsewhere", 7, 0),
    ],
)
def test_addresses_behind_what_is_given(name: str, given: int, nulls: int) -> None:
    assert unstated(TRITON, name, given) == nulls


@pytest.mark.parametrize(("name", "given"), [("add_kernel", 1), ("add_kernel", 6), ("nothing", 1)])
def test_another_number_of_arguments_is_an_error(name: str, given: int) -> None:
    with pytest.raises(ValueError, match=rf"'{name}' takes \d arguments, and gets {given}"):
        unstated(TRITON, name, given)


def test_what_is_no_ptx_is_taken_as_it_is() -> None:
    assert unstated(b"\x7fELF\x02\x00", "add_kernel", 3) == 0
