"""Every check of the kit catches a pack that is broken in its way; what it does not catch, it
leaves alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sdk_site import Site
from test_check_parts import FAULTS as FAULTS_OF_PARTS

from tactix.plugins.loader import reset_scan
from tactix_cuda import nvrtc
from tactix_sdk import errors, onnx_converter
from tactix_sdk.authoring.cli import main
from tactix_sdk.testing import (
    CHECKS,
    FAILED,
    NOTHING,
    PASSED,
    Broken,
    Outcome,
    Subject,
    outcome,
    outcomes,
)
from tactix_sdk.testing.report import child

C, NUMPY, RULE, LAYER = {"tactic": "c"}, {"tactic": "numpy"}, {"rule": True}, {"layer": True}
PATTERN = "P.tactix.Relu(P.tactix.Relu(x))"
MADE = "replace=lambda x: P.tactix.Relu(x)"
SUM = "TX_IN0(i * k + p) * TX_IN1"
STORE = "for (int64_t j = j0; j < j1; j++) TX_STORE(i * n + j, sum[j - j0]);"
KERNEL = "return Kernel(BODY, sizes"
FUNCTION = """
from typing import Any

import numpy as np

from acme_swish import pack
from tactix_sdk import TensorSpec


@pack.layer("Swish", onnx="acme_swish::Swish", infer=lambda x, **attrs: {infer})
def swish(x: Any, *, {attrs}) -> Any:
    return x * 2
"""
CONVERTER = """

@pack.onnx_converter("acme_swish::Swish")
def negated(ctx, node):
    ctx.ignore("beta")
    return ctx.layer("tactix.Neg", [ctx.tensor(0)])
"""
FORGOTTEN = """

from tactix_sdk import Tactic


class Forgotten(Tactic):
    key, implements = "acme_swish.forgotten@1", ("acme_swish.Swish@1",)

    def variant(self, work, device):
        return super().variants(work, device)


pack.tactic(Forgotten())
"""
MISSPELT = """

from tactix_sdk import hookimpl

pack.tactix_layer = hookimpl(lambda: [])
"""
LENT = '''

def lent(node: Any, variant: Any, ctx: Any) -> Any:
    """A plan that names a layer which only this pack has, and does not say so."""
    from tactix_sdk import KernelArtifact

    return KernelArtifact("tactix.numpy@1", params={"layer": "acme_swish.Hidden@1", "attrs": {}})


matmul.compile = lent
matmul.produces = True
'''
HEAP = '''

from typing import Any


class Heap:
    """Addresses that are multiples of 8 alone."""

    key, device = "acme_swish.heap", "cpu"

    def __init__(self) -> None:
        self.held: dict[int, Any] = {}

    def allocate(self, size: int, alignment: int = 64, stream: int = 0) -> int:
        import ctypes

        raw = ctypes.create_string_buffer(size + 72)
        address = ctypes.addressof(raw) // 64 * 64 + 72
        self.held[address] = raw
        return address

    def deallocate(self, address: int, stream: int = 0) -> None:
        del self.held[address]


pack.allocator(Heap())
'''
LAST = '''

from typing import Any


class Last:
    """Ranges of what came last."""

    key = "acme_swish.last"

    def __init__(self) -> None:
        self.seen: dict[str, tuple[float, float]] = {}

    def batches(self) -> Any:
        return iter(())

    def observe(self, tensor: str, values: Any) -> None:
        finite = [float(x) for x in values.reshape(-1) if abs(x) < float("inf")]
        if finite:
            self.seen[tensor] = min(finite), max(finite)

    def ranges(self) -> dict[str, tuple[float, float]]:
        return dict(self.seen)


pack.calibrator(lambda: Last())
'''


SUMS = "float sum[64] = {0};"
OTHER_THREAD = """static char *first; static _Thread_local char me;
        if (!tid && !first) first = &me;
        float sum[64] = {!tid && first != &me};"""
"""Right in the first thread that runs it, as in trials."""


TWICE = """

@pack.kernel("c", "tactix.MatMul@1", name="other")
def other(op: Operation) -> Kernel | Reject:
    \"\"\"Nothing but zeros.\"\"\"
    return Kernel("for (int64_t i = tid; i < n; i += nt) TX_STORE(i, 0);", sizes={"n": op.output.numel})


matmul.author, right = (lambda op, width: other.author(op)), matmul.author
"""


def function(infer: str = "x.plain()", attrs: str = "beta: float = 1.0") -> str:
    """The layer's module, of a Python function."""
    return FUNCTION.format(infer=infer, attrs=attrs)


PRIMITIVE = """
from acme_swish import pack
from tactix_sdk import Primitive, Scalar, abs_, exp

cube = Primitive("cube", 1, lambda x: x * x * x, (("c", "{c}"), ("cuda", "{cuda}")))


@pack.pointwise("Swish", onnx="acme_swish::Swish")
def swish(x: Scalar, *, beta: float = 1.0) -> Scalar:
    return exp(-1.0 - abs_(cube(x / 2.0) - beta))
"""
CUBE = "({0} * {0} * {0})"


def primitive(c: str = CUBE, cuda: str = CUBE) -> str:
    """The layer's module, of a function with a text for each target."""
    return PRIMITIVE.replace("{cuda}", cuda).replace("{c}", c)


@dataclass
class Fault:
    """A scaffold with changes to a file: ``old`` becomes ``new``; or ``more`` is added, or all is
    ``text``.
    """

    asked: dict[str, Any]
    file: str
    old: str = ""
    new: str = ""
    more: str = ""
    text: str = ""
    said: str = ""

    def changes(self) -> dict[str, Any]:
        def change(text: str) -> str:
            assert self.old in text
            return (
                self.text or text.replace(self.old, self.new) if self.old or self.text else text
            ) + self.more

        return {self.file: change}


FAULTS: dict[str, Fault] = {
    "import-light": Fault(LAYER, "__init__.py", "from tactix_sdk", "import numpy\nfrom tactix_sdk", said="numpy"),
    "hooks": Fault(LAYER, "__init__.py", more=MISSPELT, said="tactix_layer"),
    "overrides": Fault(LAYER, "__init__.py", more=FORGOTTEN, said="did you mean 'variants' of Tactic?"),
    "deterministic": Fault(LAYER, "layers.py", "\"Swish\", onnx", "\"Swish\", version=hash(\"a\") % 97 + 1, onnx"),
    "layer-inference": Fault(LAYER, "layers.py", text=function("TensorSpec(x.dtype, (*x.shape[:-1], 9))")),
    "symbolic-shapes": Fault(
        LAYER, "layers.py", said="over symbols",
        text=function("TensorSpec(x.dtype, tuple(d if isinstance(d, int) else 3 for d in x.shape))"),
    ),
    "attributes": Fault(LAYER, "layers.py", text=function(attrs="beta: tuple = ([1],)")),
    "onnx": Fault(LAYER, "__init__.py", more=CONVERTER, said="does not give"),
    "primitive-text": Fault(LAYER, "layers.py", text=primitive("({0} * {0})"), said="Swish@1's primitive cube, f32"),
    "rule-fires": Fault(RULE, "rules.py", PATTERN, "P.tactix.Neg(P.tactix.Relu(x))", said="does not fire"),
    "rule-numerics": Fault(RULE, "rules.py", MADE, "replace=lambda x: P.tactix.Neg(x)", said="changes"),
    "rule-termination": Fault(RULE, "rules.py", f"{PATTERN},\n        {MADE}",
                              f"P.tactix.Relu(x),\n        replace=lambda x: {PATTERN}"),
    "tactic-reference": Fault(C, "tactics.py", "p = 0; p < k; p++", "p = 1; p < k; p++", said="departs"),
    "tactic-shapes": Fault(C, "tactics.py", STORE, STORE.replace("j < j1", "j < (n < 40 ? j1 : j1 + 4096)")),
    "tactic-open-shapes": Fault(
        C, "tactics.py", KERNEL, "return Kernel(BODY.replace('split(m', f'split({prod(a.shape[:-1])}'), sizes",
        said="with open sizes",
    ),
    "tactic-not-a-number": Fault(
        C, "tactics.py", SUM, "(TX_IN0(i * k + p) == TX_IN0(i * k + p) ? TX_IN0(i * k + p) : 0) * TX_IN1"
    ),
    "tactic-deterministic": Fault(
        C, "tactics.py", KERNEL, "import random\n    return Kernel(f'{BODY}// {random.random()}', sizes", said="second"
    ),
    "allocator": Fault(LAYER, "__init__.py", more=HEAP, said="0 bytes lie at"),
    "calibrator": Fault(LAYER, "__init__.py", more=LAST, said="the same values"),
    "artifact-round-trip": Fault(
        C, "tactics.py", "sum[j - j0]);", "sum[j - j0] * (1 + 3e-7f * (__builtin_ia32_rdtsc() % 61)));", said="same"
    ),
    "streams": Fault(C, "tactics.py", SUMS, OTHER_THREAD, said="stream"),
    "data-only": Fault(C, "tactics.py", more=LENT),
    "embedded": Fault(
        NUMPY, "tactics.py", "from typing import Any\n",
        "from pathlib import Path\nfrom typing import Any\n\nTEXT = Path(__file__).read_text()\n",
    ),
    "lean-runtime": Fault(NUMPY, "tactics.py", "    return (a.as", "    import tactix.builder\n\n    return (a.as"),
}  # fmt: skip


def test_every_check_has_its_fault() -> None:
    assert set(FAULTS) | set(FAULTS_OF_PARTS) == set(CHECKS)


@pytest.mark.parametrize("name", FAULTS)
def test_the_fault_is_caught(site: Site, name: str) -> None:
    fault = FAULTS[name]
    got = outcome(CHECKS[name], site.new("acme-swish", fault.changes(), **fault.asked))
    assert got.state == FAILED, got.said
    assert fault.said in got.said


def test_floats_are_compared_as_onnx_holds_them(site: Site) -> None:
    """0.9 is no number of float32, as which a node of ONNX has it."""
    changes = {
        "layers.py": lambda text: function(attrs="beta: float = 0.9").replace(
            "x * 2", "x * (1 - beta)"
        )
    }
    got = outcome(CHECKS["onnx"], site.new("acme-swish", changes, **LAYER))
    assert (got.state, got.said) == (PASSED, "1 nodes")


def test_the_size_of_a_difference_is_told(site: Site) -> None:
    fault = FAULTS["onnx"]
    got = outcome(CHECKS["onnx"], site.new("acme-swish", fault.changes(), **fault.asked))
    assert re.search(r"gives: they differ by up to [0-9.]+$", got.said)


MORE_FAULTS = {
    "slow import": ("import-light", "import time\n\ntime.sleep(1.2)\n", "takes 1."),
    "printing import": ("import-light", "print('hello')\n", r"prints 'hello\n'"),
}


@pytest.mark.parametrize("name", MORE_FAULTS)
def test_more_faults_are_caught(site: Site, name: str) -> None:
    check, text, said = MORE_FAULTS[name]
    fault = Fault(LAYER, "__init__.py", "from tactix_sdk", f"{text}\nfrom tactix_sdk")
    got = outcome(CHECKS[check], site.new("acme-swish", fault.changes(), **fault.asked))
    assert got.state == FAILED, got.said
    assert said in got.said


def test_what_a_pack_prints_is_no_part_of_what_is_compared(site: Site) -> None:
    fault = Fault(LAYER, "__init__.py", "from tactix_sdk", "print('hello')\nfrom tactix_sdk")
    got = outcome(CHECKS["deterministic"], site.new("acme-swish", fault.changes(), **fault.asked))
    assert got.state == PASSED, got.said


@pytest.mark.parametrize("op", ["Relu", "::Relu", "acme::"])
def test_an_operator_has_a_domain(op: str) -> None:
    with pytest.raises(errors.InvalidArgument, match="Write domain::Name"):
        onnx_converter(op)


def test_the_script_of_a_failure_shows_it(
    site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fault = FAULTS["tactic-reference"]
    site.new("acme-swish", fault.changes(), **fault.asked)
    folder = tmp_path / "scripts"
    assert main(["check", "acme-swish", "-k", "tactic-reference", "--scripts", str(folder)]) == 1
    assert "departs" in capsys.readouterr().out
    with pytest.raises(Broken, match="departs"):
        child((folder / "tactic-reference.py").read_text())


def test_a_pack_that_cannot_be_loaded_is_told_once(site: Site) -> None:
    fault = Fault(
        LAYER, "__init__.py", "from tactix_sdk", "import no_such_library\nfrom tactix_sdk"
    )
    found = list(outcomes(site.new("acme-swish", fault.changes(), **fault.asked)))
    assert [o.check.name for o in found if o.state == FAILED] == ["import-light"]
    assert all("see import-light" in o.said for o in found[1:])


def test_what_is_not_there_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "no-such-pack"]) == 1
    assert "no plugins of 'no-such-pack' are installed" in capsys.readouterr().err
    with pytest.raises(errors.InvalidArgument, match="no check 'nothing'"):
        outcomes(Subject("tactix"), ["nothing"])


def test_the_list_of_checks(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--list"]) == 0
    assert {line.split()[0] for line in capsys.readouterr().out.splitlines()} == set(CHECKS)
    assert main(["check"]) == 2
    assert "Missing argument 'DIST'" in capsys.readouterr().err


def test_all_that_is_wrong_is_named(site: Site) -> None:
    change = {"tactics.py": lambda text: text + TWICE}
    got = outcome(CHECKS["tactic-reference"], site.new("acme-swish", change, **C))
    assert got.state == FAILED
    for name in (
        "acme_swish.matmul_c@1 [width=16]",
        "acme_swish.matmul_c@1 [width=64]",
        "acme_swish.other@1",
    ):
        assert f"{name}" in got.said, got.said


def test_what_divides_by_a_size_of_nothing_is_caught(site: Site) -> None:
    """The result has elements, the inputs have none."""

    def change(text: str) -> str:
        kernel = 'Kernel("const int64_t m = total / k;" + BODY, sizes={"total": a.numel, "k"'
        text = text.replace("b.const is None or ", "")
        return text.replace('Kernel(BODY, sizes={"m": prod(a.shape[:-1]), "k"', kernel)

    got = outcome(CHECKS["tactic-open-shapes"], site.new("acme-swish", {"tactics.py": change}, **C))
    assert got.state == FAILED
    assert "acme_swish.matmul_c@1" in got.said
    assert "s5 = 0" in got.said


def test_nothing_to_run_is_no_success(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    """A tactic of one shape has no other sizes to be tried at; a pack without tactics does not fail
    for that.
    """
    only = "if b.const is None or a.shape != (3, 4, 5) or"
    subject = site.new(
        "acme-swish", Fault(C, "tactics.py", "if b.const is None or", only).changes(), **C
    )
    assert outcome(CHECKS["tactic-shapes"], subject).state == NOTHING
    assert main(["check", "acme-swish", "-k", "tactic-shapes"]) == 3
    assert capsys.readouterr().out.splitlines() == [
        "- tactic-shapes          nothing to run: no runs",
        "0 passed, 0 failed, 0 skipped, 1 nothing to run",
    ]
    assert (
        main(["check", "acme-swish", "-k", "tactic-shapes", "-k", "hooks", "-k", "rule-fires"]) == 0
    )
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "1 passed, 0 failed, 0 skipped, 2 nothing to run"


def test_a_pack_of_which_nothing_could_run_does_not_count_as_checked(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = Fault(C, "tactics.py", more="\n\nmatmul.device = 'vpu'\n").changes()
    site.new("acme-swish", changes, **C)
    names = ("hooks", "deterministic", "tactic-reference", "tactic-deterministic", "streams")
    asked = [word for name in names for word in ("-k", name)]
    assert main(["check", "acme-swish", *asked]) == 3
    out = capsys.readouterr().out
    assert "skipped: acme_swish.matmul_c@1 (no device of kind 'vpu')" in out
    assert out.splitlines()[-1].startswith("2 passed, 0 failed, 1 skipped, ")
    assert main(["check", "acme-swish", "-k", "hooks"]) == 0


def test_a_part_of_a_namespace_is_checked_alone() -> None:
    given = outcome(CHECKS["hooks"], Subject("tactix.lock"))
    assert (given.state, given.said) == (PASSED, "1 objects through build")
    assert outcome(CHECKS["rule-fires"], Subject("lock")).state == NOTHING
    assert [e.key for e in Subject("cpu").entries("compilers")] == ["tactix.cc@1"]


TAKEN = """

def example(net: Any) -> None:
    import numpy as np

    x = net.add_input("x", "f32", ("n", 7))
    w, b = (net.add_constant(np.ones(s, np.float32)) for s in ((7, 3), (3,)))
    net.mark_output(*net.add_layer("tactix.Gemm", [x, w, b]), name="y")


taken = pack.rule(Rule(
    "taken", P.tactix.Gemm(x, var("w"), var("b")),
    replace=lambda x, w, b: P.tactix.Add(P.tactix.MatMul(x, w), b), phase="fuse", example=example,
))
"""


def test_a_rule_whose_example_others_change_first_is_caught(site: Site) -> None:
    """tactix makes products of such layers, in the phase before."""
    subject = site.new("acme-swish", {"rules.py": lambda text: text + TAKEN}, **RULE)
    got = outcome(CHECKS["rule-fires"], subject)
    assert got.state == FAILED
    assert "acme_swish.taken fires on its example alone, but in no build for cpu" in got.said
    assert "tactix.gemm" in got.said
    assert '"fired": []' not in child(got.script)
    assert "acme_swish.taken" not in child(got.script)
    assert outcome(CHECKS["rule-numerics"], subject).state == PASSED


def test_a_rule_for_fewer_numbers_is_tried_in_a_build_that_allows_them(site: Site) -> None:
    change = {
        "rules.py": lambda text: text.replace(
            "example=example,", 'example=example, numerics="fp16",'
        )
    }
    assert outcome(CHECKS["rule-fires"], site.new("acme-swish", change, **RULE)).state == PASSED


def test_an_entry_point_to_what_is_not_there_is_named(site: Site) -> None:
    subject = site.new("acme-swish", **LAYER)
    points = next(site.root.glob("acme_swish*.dist-info")) / "entry_points.txt"
    points.write_text(points.read_text().replace(":pack", ":pock"))
    got = outcome(CHECKS["hooks"], subject)
    assert got.state == FAILED
    assert "the entry point acme_swish = 'acme_swish:pock' cannot be loaded" in got.said
    assert "Traceback" not in got.said


def test_a_stranger_called_tactix_fails_no_check_of_another_pack(site: Site) -> None:
    subject = site.new("acme-swish", **LAYER)
    info = site.root / "stranger-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[tactix.build.v1]\ntactix = m:pack\n")
    reset_scan()
    got = outcome(CHECKS["hooks"], subject)
    assert got.state == PASSED, got.said


def test_texts_of_a_primitive_that_mean_it_pass(site: Site) -> None:
    subject = site.new("acme-swish", {"layers.py": lambda text: primitive()}, **LAYER)
    got = outcome(CHECKS["primitive-text"], subject)
    assert got.state == PASSED, got.said
    none = site.new("acme-other", **LAYER)
    assert outcome(CHECKS["primitive-text"], none) == Outcome(
        CHECKS["primitive-text"], NOTHING, "no layer of the pack has a primitive"
    )


@pytest.mark.skipif(bool(nvrtc.why_missing()), reason=nvrtc.why_missing())
def test_a_primitive_whose_cuda_does_not_compile_is_caught(site: Site) -> None:
    change = {"layers.py": lambda text: primitive(cuda="cubed({0})")}
    got = outcome(CHECKS["primitive-text"], site.new("acme-swish", change, **LAYER))
    assert got.state == FAILED
    assert "acme_swish.Swish@1's primitive cube" in got.said
    assert "cubed" in got.said


def test_the_script_of_a_primitive_shows_it(site: Site) -> None:
    change = {"layers.py": lambda text: primitive("({0} * {0})")}
    got = outcome(CHECKS["primitive-text"], site.new("acme-swish", change, **LAYER))
    with pytest.raises(Broken, match="cube"):
        child(got.script)


TWO_HOOKS = f"{MISSPELT}pack.tactix_tools = lambda: []\n"
TWO_OBJECTS = """

from tactix_sdk import Tool, hookimpl


@pack.rule
def rules():
    return 1 / 0


pack.tactix_tools = hookimpl(lambda: [Tool("1", "", print), Tool("2", "", print)])
pack.tactix_converters = hookimpl(lambda: 3)
"""
ALL_AT_ONCE: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "names of hooks": ("hooks", TWO_HOOKS, ("hook 'tactix_layer', which nothing calls", "tactix_tools is not marked")),
    "what hooks give": (
        "hooks", TWO_OBJECTS,
        ("'1' is no key of a tool", "'2' is no key of a tool", "tactix_rules of acme_swish:pack: ZeroDivision",
         "a int, not a list of converters"),
    ),
    "imports": (
        "import-light", "\n\nimport time\n\nimport numpy\n\nprint(numpy)\ntime.sleep(1.2)\n",
        ("imports numpy", "prints ", "takes 1."),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ALL_AT_ONCE)
def test_checks_before_anything_runs_name_all_that_is_wrong(site: Site, name: str) -> None:
    check, text, said = ALL_AT_ONCE[name]
    fault = Fault(LAYER, "__init__.py", more=text)
    got = outcome(CHECKS[check], site.new("acme-swish", fault.changes(), **fault.asked))
    assert got.state == FAILED
    assert [s for s in said if s not in got.said] == [], got.said


def test_every_registry_that_differs_is_named(site: Site) -> None:
    """In both groups the layers' keys are others in another process, and a tool's in one."""
    tools = """

def nothing():
    '''It says nothing.'''


nothing.__name__ = f"tool{hash('a')}".replace("-", "_")
pack.tool(nothing)
"""
    fault = FAULTS["deterministic"]
    changes = {**fault.changes(), "__init__.py": lambda text: text + tools}
    got = outcome(CHECKS["deterministic"], site.new("acme-swish", changes, **fault.asked))
    assert got.state == FAILED
    for what in ("build layers", "runtime layers", "build tools"):
        assert f"{what} differs between two processes" in got.said


SECOND = {
    "rule-fires": (RULE, "rules.py", """

other = pack.rule(Rule("other", P.tactix.Neg(x), replace=lambda x: P.tactix.Abs(x), example=example))
object.__setattr__(once, "pattern", P.tactix.Abs(x))
"""),
    "rule-numerics": (RULE, "rules.py", """

other = pack.rule(Rule("other", P.tactix.Relu(x), replace=lambda x: P.tactix.Abs(x), example=example))
object.__setattr__(once, "pattern", P.tactix.Relu(x))
object.__setattr__(once, "replace", lambda x: P.acme_swish.None_(x))
"""),
    "layer-inference": (LAYER, "layers.py", """

@pack.pointwise("Other")
def other(x: Scalar) -> Scalar:
    return x


other.reference = lambda attrs, x: (x[:1],)
swish.reference = lambda attrs, x: 1 / 0
"""),
    "attributes": (LAYER, "layers.py", """

@pack.pointwise("Other")
def other(x: Scalar, *, steps: tuple = ([1],)) -> Scalar:
    return x


swish.Attrs, swish.function = other.Attrs, other.function
"""),
    "artifact-round-trip": (C, "tactics.py", """

@pack.kernel("c", "tactix.MatMul@1", name="other")
def other(op: Operation) -> Kernel | Reject:
    body = "for (int64_t i = tid; i < n; i += nt) TX_STORE(i, __builtin_ia32_rdtsc() % 61);"
    return Kernel(body, sizes={"n": op.output.numel})


matmul.author, right = (lambda op, width: other.author(op)), matmul.author
"""),
}  # fmt: skip
"""A second part that is wrong beside the scaffold's own, which it makes wrong."""


@pytest.mark.parametrize("name", SECOND)
def test_every_check_of_parts_names_all_that_are_wrong(site: Site, name: str) -> None:
    asked, file, text = SECOND[name]
    got = outcome(CHECKS[name], site.new("acme-swish", {file: lambda t: t + text}, **asked))
    assert got.state == FAILED
    known = {
        "rules.py": "acme_swish.relu_once",
        "layers.py": "acme_swish.Swish@1",
        "tactics.py": "acme_swish.matmul_c@1",
    }[file]
    second = {
        "rules.py": "acme_swish.other",
        "layers.py": "acme_swish.Other@1",
        "tactics.py": "acme_swish.other@1",
    }[file]
    assert known in got.said
    assert second in got.said


EXAMPLES = """

swish.examples = [{examples}]
"""
WRONG = {
    "an attribute": ('({"h": 3}, "f32 2")', "no attribute 'h'"),
    "a type": ('({"beta": "a"}, "f32 2")', "attribute 'beta' is 'a': a str is no float"),
    "a size": ('({}, "f32 2 x")', "no spec: 'f32 2 x': invalid literal for int()"),
    "a dtype": ('({}, "f31 2")', "no spec: 'f31 2'"),
    "no pair": ('"f32 2"', "give (attributes by name"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_example_is_told_of_once_with_its_layer(site: Site, what: str) -> None:
    example, said = WRONG[what]
    more = EXAMPLES.replace("{examples}", example)
    subject = site.new("acme-swish", {"layers.py": lambda t: t + more}, **LAYER)
    names = ("layer-inference", "symbolic-shapes", "attributes", "onnx", "primitive-text")
    got = {name: outcome(CHECKS[name], subject) for name in names}
    told = got["layer-inference"].said
    assert got["layer-inference"].state == FAILED
    assert "acme_swish.Swish@1: " in told
    assert said in told
    assert "Traceback" not in told
    assert [name for name in names if got[name].state == FAILED] == ["layer-inference"]


CRASH = """

@pack.kernel("c", "tactix.MatMul@1", name="other")
def other(op: Operation) -> Kernel | Reject:
    \"\"\"One that ends the process.\"\"\"
    {text}
"""
ENDS = {
    "a signal": ("import os, signal\n    os.kill(os.getpid(), signal.SIGSEGV)", "signal SIGSEGV"),
    "an exit": ("import os\n    os._exit(3)", "exit status 3"),
}


@pytest.mark.parametrize("how", ENDS)
def test_what_ends_the_process_of_a_check_is_named_and_all_else_is_checked(
    site: Site, how: str
) -> None:
    text, said = ENDS[how]
    site.new(
        "acme-swish",
        {
            "tactics.py": lambda t: (
                t.replace("p = 0; p < k; p++", "p = 1; p < k; p++") + CRASH.format(text=text)
            ),
        },
        **C,
    )
    found = {
        o.check.name: o for o in outcomes(Subject("acme-swish"), ["tactic-reference", "hooks"])
    }
    assert found["tactic-reference"].state == FAILED
    first, *rest = found["tactic-reference"].said.splitlines()
    assert first == f"acme_swish.other@1: it ended the process of the check: {said}"
    assert "acme_swish.matmul_c@1" in "".join(rest)
    assert found["hooks"].state == PASSED


def test_a_check_finds_tactix_imported(site: Site) -> None:
    """Once for all checks of a pack: that takes longer than most of them."""
    look = "import sys\n\nassert 'tactix_ops.layers.conv' in sys.modules\nfrom tactix_sdk"
    change = {"__init__.py": lambda t: t.replace("from tactix_sdk", look, 1)}
    (got,) = outcomes(site.new("acme-swish", change, **LAYER), ["hooks"])
    assert got.state == PASSED, got.said


def test_a_check_without_end_has_failed(site: Site) -> None:
    from tactix_sdk.testing.apart import CheckServer

    waits = {
        "tactics.py": lambda t: t.replace(
            "    a, b = op.inputs", "    while True: pass\n    a, b = op.inputs"
        )
    }
    server = CheckServer(patience=4)
    got, _ = server.outcome("tactic-deterministic", site.new("acme-swish", waits, **C))
    assert got.state == FAILED
    assert got.said == "acme_swish.matmul_c@1: no end after 4 s"
    server.close()
