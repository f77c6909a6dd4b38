"""``torch.compile(..., backend="tactix")``: engines where they can stand in for a graph, torch where
they cannot, and the same results in both.
"""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from tactix.base.errors import ConfigError  # noqa: E402
from tactix.base.logger import Logger, Severity  # noqa: E402


class Heard(Logger):
    """Keeps warnings."""

    def __init__(self) -> None:
        super().__init__()
        self.warnings: list[str] = []

    def log(self, severity: Severity, msg: str) -> None:
        if severity <= Severity.WARNING:
            self.warnings.append(msg)

    @property
    def left(self) -> list[str]:
        """Why graphs were left to torch."""
        return [w for w in self.warnings if "left to torch" in w]


@pytest.fixture(autouse=True)
def _traced_anew() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(3)
    yield
    torch._dynamo.reset()


@pytest.fixture
def heard() -> Heard:
    return Heard()


def compiled(program: Any, heard: Heard, **options: Any) -> Callable[..., Any]:
    said = {"level": 0, "threads": 1, "timing_cache": False, "logger": heard, **options}
    result: Callable[..., Any] = torch.compile(program, backend="tactix", options=said)
    return result


def agree(found: Any, wanted: Any, tolerance: float) -> None:
    if isinstance(wanted, torch.Tensor):
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance)
    elif isinstance(wanted, dict):
        assert found.keys() == wanted.keys()
        agree(list(found.values()), list(wanted.values()), tolerance)
    elif isinstance(wanted, (tuple, list)):
        for a, b in zip(found, wanted, strict=True):
            agree(a, b, tolerance)
    else:
        assert found == wanted


def same(
    program: Any, calls: Sequence[Sequence[Any]], heard: Heard, tolerance: float = 1e-4
) -> None:
    fast = compiled(program, heard)
    with torch.no_grad():
        for arguments in calls:
            mine, torchs = copy.deepcopy(arguments), copy.deepcopy(arguments)
            agree(fast(*mine), program(*torchs), tolerance)
            agree(mine, torchs, tolerance)  # what is written to arguments, too


def _sizes(x: Any) -> Any:
    for i in range(x.shape[1]):
        x = x * 1.01 + i
    return x, x.shape[0] * 2, None


ENGINES: dict[str, tuple[Callable[[], Any], Callable[[], list[list[Any]]]]] = {
    "float32": (lambda: lambda x: (x @ x.t()).relu(), lambda: [[torch.randn(4, 8)]]),
    "integers": (lambda: lambda x: (x * 2, x.sum()), lambda: [[torch.arange(6)]]),
    "bools": (lambda: lambda x: (x > 0, (x > 0).any()), lambda: [[torch.randn(4, 8)]]),
    "float64": (lambda: lambda x: x.sin().cumsum(1), lambda: [[torch.randn(4, 8).double()]]),
    "strided": (lambda: lambda x: x.relu() + 1, lambda: [[torch.randn(4, 8).t()]]),
    "a number": (lambda: lambda x: x + 1, lambda: [[torch.tensor(3.0)]]),
    "one tensor twice": (
        lambda: lambda x, y: (x + y, x - y),
        lambda: [[t, t] for t in (torch.randn(4, 8),)],
    ),
    "one result twice": (lambda: lambda x: (x + 1,) * 2, lambda: [[torch.randn(4, 8)]]),
    "dicts": (
        lambda: lambda d: {"a": d["x"] + 1, "b": [d["x"].relu()]},
        lambda: [[{"x": torch.randn(3)}]],
    ),
    "sizes, numbers, None": (
        lambda: _sizes,
        lambda: [[torch.randn(n, 4)] for n in (3, 5, 6, 1, 2)],
    ),
    "no elements": (lambda: lambda x: x.relu() + 1, lambda: [[torch.zeros(n, 4)] for n in (0, 2, 5, 0)]),
    "data-dependent sizes": (lambda: lambda x: torch.nonzero(x > 0), lambda: [[torch.randn(4, 8)]]),
    "attention": (
        lambda: lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True),
        lambda: [[torch.randn(1, 2, 7, 8)]],
    ),
    "an LSTM": (
        lambda: _first(nn.LSTM(8, 16, batch_first=True).eval()),
        lambda: [[torch.randn(2, 5, 8)]],
    ),
    "images of many sizes": (
        lambda: _vision(),
        lambda: [[torch.randn(n, 3, 16 + n, 18)] for n in (1, 2, 3)],
    ),
    "a table": (lambda: nn.Embedding(10, 4), lambda: [[torch.tensor([[1, 2], [3, 4]])]]),
}  # fmt: skip


def _first(model: Any) -> Any:
    return lambda x: model(x)[0]


def _vision() -> Any:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.SiLU(), nn.AdaptiveAvgPool2d(1)
    ).eval()


@pytest.mark.parametrize(("program", "calls"), ENGINES.values(), ids=ENGINES.keys())
def test_engines_do_as_torch_does(
    program: Callable[[], Any], calls: Callable[[], list[list[Any]]], heard: Heard
) -> None:
    same(program(), calls(), heard)
    assert heard.left == []


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_sixteen_bits_go_in_and_out(dtype: str, heard: Heard) -> None:
    x = torch.randn(4, 8).to(getattr(torch, dtype))
    same(lambda x: (x @ x.t()).relu(), [[x]], heard, tolerance=3e-2)
    assert heard.left == []


def test_autocast(heard: Heard) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        same(_vision(), [[torch.randn(1, 3, 16, 16)]], heard, tolerance=3e-2)
    assert heard.left == []


def _counts() -> Any:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("n", torch.zeros(1))

        def forward(self, x: Any) -> Any:
            self.n += 1
            return x + self.n

    return Counts()


LEFT = {
    "a view of an input": (lambda x: x.t(), "lies in the memory of an input"),
    "writes to an input": (
        lambda x: x.add_(1) * 2,
        "lies in the memory|writes to what it is given",
    ),
    "writes to a slice": (lambda x: [x[:, 1:].mul_(2), x.sum()][1], "writes to what it is given"),
    "random numbers": (lambda x: x + torch.rand(3).sum() * 0, "random numbers"),
    "complex results": (lambda x: torch.fft.fft(x), "complex numbers"),
}


@pytest.mark.parametrize(("program", "why"), LEFT.values(), ids=LEFT.keys())
def test_what_no_engine_can_do_is_left_to_torch(
    program: Callable[..., Any], why: str, heard: Heard
) -> None:
    same(program, [[torch.randn(3, 4)], [torch.randn(3, 4)]], heard)
    assert heard.left
    torch._dynamo.reset()
    strict = compiled(program, heard, fallback="error")
    with torch.no_grad(), pytest.raises(Exception, match=why):
        strict(torch.randn(3, 4))


def test_state_that_a_program_keeps_is_torchs(heard: Heard) -> None:
    fast = compiled(_counts(), heard)
    with torch.no_grad():
        assert [fast(torch.zeros(1)).item() for _ in range(3)] == [1, 2, 3]


def test_gradients_are_torchs(heard: Heard) -> None:
    model = nn.Linear(4, 2)
    compiled(model, heard)(torch.ones(3, 4)).sum().backward()
    assert model.weight.grad is not None
    assert "inference_mode" in heard.left[0]


def test_weights_that_change_are_seen(heard: Heard) -> None:
    model = nn.Linear(4, 2)
    fast = compiled(model, heard)
    x = torch.randn(3, 4)
    with torch.no_grad():
        agree(fast(x), model(x), 1e-4)
        model.weight.mul_(2)
        agree(fast(x), model(x), 1e-4)
        model.load_state_dict({k: v + 1 for k, v in model.state_dict().items()})
        agree(fast(x), model(x), 1e-4)
        model.bias.data = torch.randn(2)
        agree(fast(x), model(x), 1e-4)
    assert sum("changed" in w for w in heard.warnings) == 3
    assert heard.left == []


def test_shapes_that_the_exporter_fixes_are_torchs(heard: Heard) -> None:
    """torch's exporter writes the windows of such a pooling for one size of images."""
    model = nn.Sequential(nn.Conv2d(3, 5, 3, stride=2), nn.AdaptiveAvgPool2d((3, 1))).eval()
    same(model, [[torch.randn(2, 3, n, n + 2)] for n in (11, 17, 23, 9)], heard)
    assert heard.left


def test_a_folder_that_takes_no_plans_is_told(heard: Heard, tmp_path: Any) -> None:
    (tmp_path / "file").touch()
    fast = compiled(lambda x: x * 2, heard, cache=tmp_path / "file")
    with torch.no_grad(), pytest.raises(ConfigError, match="no plans can be kept"):
        fast(torch.ones(3))


def test_engines_are_told(heard: Heard) -> None:
    told: list[str] = []
    heard.info = told.append  # type: ignore[method-assign]
    with torch.no_grad():
        compiled(lambda x: x * 2, heard)(torch.ones(3))
    assert any("runs as <engine" in text for text in told)


def test_results_are_no_tensors_of_the_engine(heard: Heard) -> None:
    """The next call leaves them as they are."""
    fast = compiled(lambda x: x * 2, heard)
    with torch.inference_mode():
        first = fast(torch.ones(4))
        fast(torch.zeros(4))
        assert first.tolist() == [2, 2, 2, 2]
        first.add_(1)  # they may be written to


def test_plans_are_kept(heard: Heard, tmp_path: Any) -> None:
    x = torch.randn(3, 4)
    for _ in range(2):
        torch._dynamo.reset()
        torch.manual_seed(5)
        model = nn.Linear(4, 2)
        with torch.no_grad():
            agree(compiled(model, heard, cache=tmp_path)(x), model(x), 1e-4)
        assert len(list(tmp_path.glob("*.plan"))) == 1
    assert heard.left == []


@pytest.mark.parametrize(
    ("options", "mode", "why"),
    [
        ({"fallback": "maybe"}, None, "fallback is 'maybe'"),
        ({"levle": 3}, None, "no build option 'levle'"),
        ({"precision": "fp4"}, None, "no precision 'fp4'"),
        ({"logger": 3}, None, "is no logger"),
        ({"cache": 3}, None, "cache"),
        (None, "max-autotune", "no mode 'max-autotune'"),
    ],
)
def test_wrong_options_are_told(options: Any, mode: str | None, why: str) -> None:
    fast = torch.compile(lambda x: x * 2, backend="tactix", options=options, mode=mode)
    with torch.no_grad(), warnings.catch_warnings(), pytest.raises(Exception, match=why):
        fast(torch.ones(3))


def test_the_example_of_the_documents_runs(capsys: Any) -> None:
    page = Path(__file__).parents[3] / "docs" / "torch-compile.md"
    (example,) = re.findall(r"```python\n(.*?)```", page.read_text(), re.S)
    exec(example, {})
    assert "[8, 10]" in capsys.readouterr().out
