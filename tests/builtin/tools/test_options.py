from __future__ import annotations

from typing import Any

import click
import pytest
from click.testing import CliRunner

from tactix.base.errors import ConfigError
from tactix.config import BuilderFlag
from tactix_tools import options
from tactix_tools.options import DURATION, SHAPES


@click.command()
@options.build_options
def probe(**given: Any) -> None:
    probe.seen = options.settings(given, {"fixed": (2,)})  # type: ignore[attr-defined]


def parse(*args: str) -> dict[str, Any]:
    result = CliRunner().invoke(probe, args, standalone_mode=False)
    if result.exception:
        raise result.exception
    return probe.seen  # type: ignore[attr-defined,no-any-return]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("x:1x3x224x224", {"x": (1, 3, 224, 224)}),
        ("x:7, y:1x2", {"x": (7,), "y": (1, 2)}),
        ("input:0:4x1", {"input:0": (4, 1)}),
        ("s:scalar", {"s": ()}),
        ("a/b.c:0x5", {"a/b.c": (0, 5)}),
    ],
)
def test_shapes(text: str, want: dict[str, tuple[int, ...]]) -> None:
    assert SHAPES.convert(text, None, None) == want


@pytest.mark.parametrize("text", ["x", "x:", ":1x2", "x:1x", "x:-1x2", "x:1xN", "", "x:1,,y:2"])
def test_bad_shapes_name_the_item(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not of the form name:1x3x224x224"):
        SHAPES.convert(text, None, None)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("250ms", 0.25), ("2m", 120), ("1.5h", 5400), ("0", 0)],
)
def test_durations(text: str, seconds: float) -> None:
    assert DURATION.convert(text, None, None) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "fast", "-1s", "1d", "1.s"])
def test_bad_durations(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a time"):
        DURATION.convert(text, None, None)


def test_defaults_leave_choices_to_the_builder() -> None:
    seen = parse()
    assert seen["level"] == 3
    assert seen["threads"] == 0
    assert seen["timing_cache"] is None
    assert seen["flags"] == set()
    assert seen["shapes"] == {"fixed": ((2,), (2,), (2,))}
    assert seen["precision"] == "fp32"
    assert seen["layer_precisions"] == {}
    assert "tactic_sources" not in seen
    assert "budget" not in seen


def test_everything_given() -> None:
    seen = parse(
        "-O5",
        "--tactics",
        "c, numpy",
        "--threads",
        "2",
        "--budget",
        "1m",
        "--no-timing-cache",
        "--exact",
        "--no-fallback",
        "--gpu-fallback",
        "--version-compatible",
        "--exclude-lean-runtime",
        "--enable",
        "acme",
        "--enable",
        "other",
        "--embed",
        "auto",
        "--embed",
        "a.whl",
    )
    assert seen["tactic_sources"] == {"c", "numpy"}
    assert seen["budget"] == 60
    assert seen["timing_cache"] is False
    fallbacks = {BuilderFlag.NO_FALLBACK, BuilderFlag.GPU_FALLBACK}
    compatible = {BuilderFlag.VERSION_COMPATIBLE, BuilderFlag.EXCLUDE_LEAN_RUNTIME}
    assert seen["flags"] == {BuilderFlag.EXACT_NUMERICS, *compatible, *fallbacks}
    assert seen["enable"] == ("acme", "other")
    assert seen["plugins_to_serialize"] == ["auto", "a.whl"]


def test_profiles_fill_what_is_missing() -> None:
    shapes = parse(
        "--min-shapes", "x:1x4,y:2", "--opt-shapes", "x:8x4", "--max-shapes", "x:32x4,z:9"
    )["shapes"]
    assert shapes["x"] == ((1, 4), (8, 4), (32, 4))
    assert shapes["y"] == ((2,), (2,), (2,))
    assert shapes["z"] == ((9,), (9,), (9,))


@pytest.mark.parametrize("which", ["min", "opt", "max"])
def test_profiles_of_scalars(which: str) -> None:
    assert parse(f"--{which}-shapes", "s:scalar")["shapes"]["s"] == ((), (), ())


def test_precisions_of_all_layers_and_of_some() -> None:
    seen = parse(
        "--precision",
        "fp16",
        "--layer-precision",
        "/a:0/norm*:fp32",
        "--layer-precision",
        "head:bf16",
    )
    assert seen["precision"] == "fp16"
    assert seen["layer_precisions"] == {"/a:0/norm*": "fp32", "head": "bf16"}
    for wrong in ("head:int4", "head"):
        with pytest.raises(ConfigError, match="fp32, fp16, bf16, int8 or fp8"):
            parse("--layer-precision", wrong)


def test_cache_options_contradict() -> None:
    with pytest.raises(click.UsageError, match="contradict"):
        parse("--no-timing-cache", "--timing-cache", "somewhere.json")


@pytest.mark.parametrize(
    "args",
    [("-O6",), ("--threads", "-1"), ("--budget", "soon"), ("--budget", "0"), ("--budget", "-1")],
)
def test_out_of_range_is_a_usage_error(args: tuple[str, ...]) -> None:
    with pytest.raises(click.UsageError):
        parse(*args)


def test_a_budget_of_nothing_names_the_level_that_measures_nothing() -> None:
    with pytest.raises(click.UsageError, match=r"'0ms' is no time at all. To measure .* -O0"):
        parse("--budget", "0ms")


@pytest.mark.parametrize("size", [str(1 << 62), "9" * 20, "9" * 5000])
def test_sizes_that_no_plan_takes_are_usage_errors(size: str) -> None:
    with pytest.raises(click.BadParameter, match=str((1 << 62) - 1)):
        SHAPES.convert(f"x:{size}x3", None, None)


def test_threads_have_an_upper_bound() -> None:
    assert parse("--threads", "255")["threads"] == 255
    with pytest.raises(click.BadParameter, match="255"):
        parse("--threads", "256")
