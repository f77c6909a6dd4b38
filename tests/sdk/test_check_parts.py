"""The checks of importers, converters, compilers, launchers, devices, build stages, flavours, trust
stores and tools catch parts that are wrong in one way each, and leave right ones alone.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import pytest
from sdk_site import Site

from tactix_sdk.testing import CHECKS, FAILED, NOTHING, PASSED, Outcome, outcome
from tactix_sdk.testing.watching import Watch

HEAD = """

import hashlib
import hmac
import json
import os
import random
import threading
import time
from dataclasses import replace
from pathlib import Path

import click

from tactix.base.errors import PlanCompatibilityError, PlanFormatError
from tactix_cpu.allocator import ArenaAllocator
from tactix_cpu.device import CpuDevice, WorkerStream
from tactix_sdk import (
    Binary, BuildPart, BuildStage, Calls, Compiler, Converter, Flavour, Importer, Launcher, Presenter, Source,
    Tool, errors,
)
"""
IMPORTER = """

class Lines(Importer):
    key, format = "acme_part.lines@1", "lines"
    examples = [("small.lines", b"2 3\\nRelu\\n")]

    def claims(self, source):
        return isinstance(source, (str, Path)) and str(source).endswith(".lines")

    def load(self, source, network, converters):
        try:
            self.fill(Path(source).read_text().splitlines(), network)
        except (ValueError, IndexError) as e:
            raise errors.ModelImportError("damaged", who=str(source), why=str(e)) from e

    def fill(self, lines, network):
        x = network.add_input("x", "f32", [int(d) for d in lines[0].split()])
        for op in lines[1:]:
            (x,) = network.add_layer(f"tactix.{op}", [x])
        network.mark_output(x, "y")


parts = [Lines()]
"""
CONVERTER = """

parts = [Converter("onnx", "acme_part::Part", lambda ctx, node: None)]
"""
COMPILER = """

class Upper(Compiler):
    key, language, launcher = "acme_part.upper@1", "shout", "tactix.numpy@1"
    examples = [Source("shout", "a"), Source("shout", "b")]

    def available(self):
        return ""

    def identity(self):
        return "upper 1.0"

    def compile(self, sources, device):
        for s in sources:
            if "no program" in s.text:
                raise errors.CompilerError("a fault", who=self.key, why="line 2: )}]")
        blob = "\\n".join(s.text.upper() for s in sources).encode()
        return [Binary(blob, "k" + s.digest[:8]) for s in sources]


parts = [Upper()]
"""
LAUNCHER = """

class Voice(Launcher):
    key = "acme_part.voice@1"
    device = "cpu"
    host_code = False

    def link(self, steps, ctx):
        for s in steps:
            if s.artifact.code is None:
                raise errors.ExecutionError("it has no text", who=s.name)
        return Calls([])


parts = [Voice()]
"""
DEVICE = """

class Memory(ArenaAllocator):
    key, device = "acme_part.memory", "acme_part"


class Board(CpuDevice):
    key, kind = "acme_part.board@1", "acme_part"
    alignment = 64

    def properties(self):
        return replace(super().properties(), kind="acme_part", name="a board", facts={"rev": 1})

    def available(self):
        return ""


parts = [Board()]
"""
BUILD_STAGE = """

class Mark(BuildPart):
    def plan(self, plan):
        return replace(plan, meta={**plan.meta, "acme_part": 1})


class Marks(BuildStage):
    key = "acme_part.marks"
    serves = frozenset({"weight_streaming"})

    def join(self, session, config):
        return Mark()


parts = [Marks()]
"""
FLAVOUR = """

class Counting(Flavour):
    key = "acme_part.counting"

    def __init__(self):
        self.made = {}

    def load(self, plan, session, device, options):
        self.made[plan.name] = self.made.get(plan.name, 0) + 1
        return session.flavours["default"].load(plan, session, device, options)


parts = [Counting()]
"""
TRUST_STORE = """

class Sealed:
    key = "acme_part.sealed"

    def sign(self, digest):
        return hmac.digest(b"secret", digest, "sha256")

    def trusted_by(self, seal):
        return "sealed" if seal.signature == self.sign(seal.digest) else ""


parts = [Sealed()]
"""
PRESENTER = """

from html import escape


class Drawn(Presenter):
    key = "acme_part.drawn"

    def html(self, subject):
        if not hasattr(subject, "outputs"):
            return None
        return f"<p>{escape(subject.name)}</p>"


parts = [Drawn()]
"""
TOOL = """

@click.group("audit")
def command():
    \"\"\"Look at plans.\"\"\"


@command.command("steps")
@click.argument("plan")
def steps(plan):
    \"\"\"Their steps.\"\"\"


parts = [Tool("audit", "Look at plans.", lambda: command)]
"""


@dataclass(frozen=True)
class PartOfPack:
    """A part that is right, and the hook that gives it."""

    hook: str
    text: str


RIGHT = {
    "importer": PartOfPack("importers", IMPORTER),
    "converter": PartOfPack("converters", CONVERTER),
    "compiler": PartOfPack("compilers", COMPILER),
    "launcher": PartOfPack("launchers", LAUNCHER),
    "device": PartOfPack("devices", DEVICE),
    "build-stage": PartOfPack("build_stages", BUILD_STAGE),
    "flavour": PartOfPack("flavours", FLAVOUR),
    "trust-store": PartOfPack("trust_stores", TRUST_STORE),
    "presenter": PartOfPack("presenters", PRESENTER),
    "tool": PartOfPack("tools", TOOL),
}
HOOK = """

from tactix_sdk import hookimpl


@hookimpl
def given_{hook}():
    from acme_part.layers import {name}

    return {given}


pack.tactix_{hook} = given_{hook}
"""
"""A bare hook, as what these packs give is not always what a pack takes."""
CLAIMS = 'return isinstance(source, (str, Path)) and str(source).endswith(".lines")'
OFF = """class Off:
    def __init__(self, engine):
        self.engine = engine

    def create_execution_context(self):
        return Off(self.engine.create_execution_context())

    def run(self, feeds):
        return {name: y + 1 for name, y in self.engine.run(feeds).items()}

    def __getattr__(self, name):
        return getattr(self.engine, name)


"""
DEFAULT = 'return session.flavours["default"].load(plan, session, device, options)'
SEALED = 'return "sealed" if seal.signature == self.sign(seal.digest) else ""'
BINARIES = 'return [Binary(blob, "k" + s.digest[:8]) for s in sources]'
JOIN = "return Mark()"
HERE = '    def available(self):\n        return ""'
PRODUCE = """    def produce(self, step, env, values, bodies, ctx):
        return {}

    def link"""
LINK = 'raise errors.ExecutionError("it has no text", who=s.name)'
Pairs = list[tuple[str, str]]


def more(text: str) -> tuple[str, str]:
    """Another method of a flavour."""
    return "    def load", f"    {text}\n\n    def load"


def opened(text: str) -> tuple[str, str]:
    """How a flavour opens a plan."""
    return more(f"def open(self, runtime, source, verify):\n        {text}")


def streams(text: str) -> tuple[str, str]:
    """Streams of a device."""
    return HERE, f"{HERE}\n\n    def create_stream(self):\n        return Own(self)\n\n{text}"


FAULTS: dict[str, dict[str, tuple[Pairs, str]]] = {
    "importer": {
        "an error": (
            [(CLAIMS, "return source.endswith('.lines')")],
            "claims(None) raises AttributeError",
        ),
        "no bool": (
            [(CLAIMS, "return str(source).endswith('.lines') or None")],
            "claims(None) gives None, not True or",
        ),
        "all is read": (
            [
                (
                    CLAIMS,
                    f"try:\n            Path(source).read_bytes()\n        except (OSError, TypeError, ValueError):\n"
                    f"            pass\n        {CLAIMS}",
                )
            ],
            "claims(a file of 64 MiB) takes 64 MiB of memory",
        ),
        "a note": (
            [(CLAIMS, f"Path(__file__).with_name('seen').write_text('1')\n        {CLAIMS}")],
            "claims(None) writes ",
        ),
        "no example": (
            [('examples = [("small.lines", b"2 3\\nRelu\\n")]', "examples = []")],
            "it has no example",
        ),
        "not claimed": ([('("small.lines"', '("small.txt"')], "small.txt: it does not claim that"),
        "another one each time": (
            [
                ('"f32", [int', '"f32", [random.randrange(1 << 40), *(int'),
                ("lines[0].split()]", "lines[0].split())]"),
            ],
            "and the second time",
        ),
        "beside the model": (
            [
                (
                    "        try:",
                    "        Path(source).with_name('cache').write_text('')\n        try:",
                )
            ],
            "changes what is in its",
        ),
        "no result": ([('network.mark_output(x, "y")', "pass")], "its network has no output"),
        "files": (
            [
                (
                    "    def fill",
                    "    def files(self, path):\n        return [f'{path}.bin']\n\n    def fill",
                )
            ],
            "not there",
        ),
        "no type": (
            [("except (ValueError, IndexError)", "except ZeroDivisionError")],
            "load, of small.lines cut off after 0 bytes, raises IndexError",
        ),
    },
    "presenter": {
        "a name": ([("escape(subject.name)", "subject.name")], "a name is HTML: escape names"),
        "a script": ([("<p>", "<script>1</script><p>")], "has a script"),
        "an image": ([("<p>", "<image href='http://x'>")], "loads something"),
        "anything": ([("return None", 'return "<p>?</p>"')], "it draws None: give None"),
        "no text": (
            [('return f"<p>{escape(subject.name)}</p>"', 'return b""')],
            "give HTML, or None",
        ),
    },
    "converter": {
        "no format": ([('"onnx", "', '"lines", "')], "no importer reads 'lines'"),
        "no function": (
            [("lambda ctx, node: None", "3")],
            "its convert is 3, which cannot be called",
        ),
        "no node": (
            [("lambda ctx, node: None", "lambda ctx: None")],
            "its convert takes (ctx); it is called with (ctx, node)",
        ),
    },
    "compiler": {
        "no launcher": (
            [('"tactix.numpy@1"', '"acme_part.none@1"')],
            "there is no launcher 'acme_part.none@1'",
        ),
        "no text": ([('return ""', "return None")], "available() gives None"),
        "no example": (
            [('examples = [Source("shout", "a"), Source("shout", "b")]', "examples = []")],
            "it has no example",
        ),
        "no identity": ([('return "upper 1.0"', "return ''")], "identity() gives ''"),
        "an identity by chance": (
            [('return "upper 1.0"', "return str(random.random())")],
            "identity() gives '0.",
        ),
        "too few": (
            [(BINARIES, BINARIES.replace("in sources]", "in set(sources)]"))],
            "3 sources give 2 binaries",
        ),
        "blobs": (
            [(BINARIES, BINARIES.replace("(blob", "(s.text.encode()"))],
            "have several blobs",
        ),
        "nothing": ([(BINARIES, BINARIES.replace("(blob", "(b''"))], "a binary is empty"),
        "one name": (
            [(BINARIES, BINARIES.replace("s.digest[:8]", "'1'"))],
            "different sources have the same symbol",
        ),
        "new names": (
            [(BINARIES, BINARIES.replace("s.digest[:8]", "str(random.random())"))],
            "the same source is called",
        ),
        "another process": (
            [(".encode()", ".encode() + str(hash('a')).encode()")],
            "another process makes other binaries",
        ),
        "no type": (
            [('raise errors.CompilerError("a fault", who=self.key, why="line 2: )}]")', "1 / 0")],
            "ZeroDivisionError",
        ),
        "no words": ([(', why="line 2: )}]"', "")], "give the compiler's own words"),
        "stopped": (
            [
                (
                    "        for s in sources:",
                    "        if self.stopped():\n            raise KeyError(1)\n        for s in sources:",
                )
            ],
            "compile, of a build that was stopped, raises KeyError",
        ),
    },
    "launcher": {
        "no device": ([('device = "cpu"', 'device = "vpu"')], "there is no device of kind 'vpu'"),
        "no bool": ([("host_code = False", 'host_code = "no"')], "its host_code is 'no'"),
        "no type": (
            [(LINK, "s.artifact.params['text']")],
            "link, of a step with nothing in it, raises KeyError",
        ),
        "no runnable": ([(LINK, "return 3")], "link gives a int, which has no bind"),
        "nothing": ([("def link", "def links")], "neither a link() nor a produce() of its own"),
        "an untyped produce": (
            [
                (
                    "    def link",
                    PRODUCE.format("[values[0]]"),
                )
            ],
            "produce, of a step with nothing in it, raises IndexError",
        ),
        "no list": (
            [
                (
                    "    def link",
                    PRODUCE.format("3"),
                )
            ],
            "produce gives a int, not a list",
        ),
    },
    "device": {
        "no memory": (
            [('"acme_part.memory", "acme_part"', '"acme_part.memory", "cpu"')],
            "no allocator for 'acme_part'",
        ),
        "no power of two": (
            [("alignment = 64", "alignment = 48")],
            "its alignment is 48, no power of two",
        ),
        "any target": (
            [(HERE, f"{HERE}\n\n    def target(self, name):\n        return self.properties()")],
            "target takes a model that is none",
        ),
        "an error": (
            [(HERE, HERE.replace('return ""', "1 / 0"))],
            "It is asked whether it is here: ZeroDivisionError",
        ),
        "no text": ([(HERE, HERE.replace('return ""', "return None"))], "available() gives None"),
        "another kind": ([('kind="acme_part", ', "")], "its properties are of the kind 'cpu'"),
        "no name": ([('name="a board"', 'name=""')], "its properties have no name"),
        "by chance": (
            [('{"rev": 1}', '{"rev": 1}, memory=random.randrange(1 << 40)')],
            "others the second time",
        ),
        "no cores": ([('{"rev": 1}', '{"rev": 1}, cores=0')], "it has 0 cores"),
        "no JSON": ([('{"rev": 1}', '{"rev": object}')], "its facts are no JSON"),
        "no time": (
            [
                (
                    "alignment = 64",
                    "alignment = 64\n    costs = replace(CpuDevice.costs, bandwidth=0)",
                )
            ],
            "its costs are",
        ),
        "no bench": (
            [("alignment = 64", "alignment = 64\n    bench = int")],
            "its bench is <class 'int'>",
        ),
        "less": (
            [
                (
                    HERE,
                    f"{HERE}\n\n    def copy_out(self, array, address):\n"
                    "        super().copy_out(array[: len(array) // 2], address)",
                )
            ],
            "copy_in, then copy_out, of 3 bytes gives others",
        ),
        "last first": (
            [
                streams("""
class Own(WorkerStream):
    def __init__(self, device):
        super().__init__()
        device._streams[self.handle] = self
        self.work = []

    def submit(self, work):
        self.work.append(work)

    def synchronize(self):
        while self.work:
            self.work.pop()()
""")
            ],
            "done in the order [19, 18",
        ),
        "swallowed": (
            [
                streams("""
class Own(WorkerStream):
    def __init__(self, device):
        super().__init__()
        device._streams[self.handle] = self

    def synchronize(self):
        try:
            super().synchronize()
        except Exception:
            pass
""")
            ],
            "synchronize() does not raise",
        ),
        "one handle": (
            [
                streams("""
class Own(WorkerStream):
    def __init__(self, device):
        super().__init__()
        self.handle = 7
        device._streams[self.handle] = self
""")
            ],
            "two streams have the handles 7 and 7",
        ),
        "any stream": (
            [
                (
                    HERE,
                    f"{HERE}\n\n    def stream_of(self, stream):\n"
                    "        return self._streams.get(stream, self._caller)",
                )
            ],
            "stream_of takes a handle that no stream has",
        ),
        "time goes back": (
            [
                (
                    HERE,
                    f"{HERE}\n\n    def create_event(self):\n        made = super().create_event()\n"
                    "        made.elapsed = lambda earlier: -1.0\n        return made",
                )
            ],
            "an event is -1.0 s after",
        ),
    },
    "build-stage": {
        "nothing": ([('frozenset({"weight_streaming"})', "frozenset()")], "it serves frozenset()"),
        "not asked for": (
            [('{"weight_streaming"}', '{"speed"}')],
            "it serves speed, which nothing asks for",
        ),
        "no depth": (
            [("    def join", '    depth = "deep"\n\n    def join')],
            "its depth is 'deep'",
        ),
        "no part": ([(JOIN, "return 3")], "join gives a int, no BuildPart"),
        "kept": (
            [(JOIN, f"self.seen = config\n        {JOIN}")],
            "joining a build changes the stage",
        ),
        "the caller's network": (
            [
                (
                    "    def plan",
                    "    def network(self, network):\n        network.mark_output(network.nodes[0].outputs[0], 'z')\n"
                    "        return network\n\n    def plan",
                )
            ],
            "with WEIGHT_STREAMING a build changes the caller's network",
        ),
        "by chance": (
            [('"acme_part": 1', '"acme_part": random.random()')],
            "two builds give plans of other bytes",
        ),
        "no type": ([('"acme_part": 1', '"acme_part": 1 / 0')], "ZeroDivisionError"),
        "any file": (
            [('{"weight_streaming"}', '{"frozen"}')],
            "frozen='no-such-file.lock' does not refuse that",
        ),
    },
    "flavour": {
        "none": (
            [opened("raise PlanCompatibilityError('it is Monday')")],
            "it opens no plan that is built here",
        ),
        "no type": ([opened("return self.load(source)")], "TypeError"),
        "other answers": (
            [("class Counting", f"{OFF}class Counting"), (DEFAULT, f"return Off({DEFAULT[7:]})")],
            "other answers than the default flavour's",
        ),
        "anyone's code": (
            [
                opened(
                    "runtime.on_untrusted = 'allow'\n        return runtime.load(runtime.read(source, verify))"
                )
            ],
            "runs the code of a plan that nobody signed",
        ),
        "damage": (
            [
                opened(
                    "try:\n            return super().open(runtime, source, verify)\n"
                    "        except PlanFormatError:\n            raise KeyError(1)"
                )
            ],
            "open, of a plan cut off after 0 bytes, raises KeyError",
        ),
        "no bool": (
            [more("def hands_over(self, runtime, source):\n        return None")],
            "hands_over gives None",
        ),
        "no plan": (
            [more("def on_references(self, plan, steps):\n        return None")],
            "on_references gives a NoneType",
        ),
    },
    "trust-store": {
        "not its own": ([(SEALED, 'return ""')], "it does not vouch for what it signed"),
        "anyone": (
            [(SEALED, 'return "sealed" if seal.signature else ""')],
            "it vouches for the signature b'\\x00'",
        ),
        "everyone": ([(SEALED, 'return "welcome"')], "it vouches for a plan that nobody signed"),
        "half": (
            [
                (
                    SEALED,
                    'return "sealed" if seal.signature and seal.signature in self.sign(seal.digest) else ""',
                )
            ],
            "it vouches for half of a signature",
        ),
        "another plan": (
            [("digest, ", "digest[:-1], ")],
            "it vouches for a plan that was changed after it was signed",
        ),
        "no text": ([(SEALED, "return None")], "gives None: give a text"),
        "no type": (
            [(SEALED, f"json.loads(seal.signature)\n        {SEALED}")],
            "raises JSONDecodeError",
        ),
        "no bytes": (
            [('return hmac.digest(b"secret", digest, "sha256")', "return digest.hex()")],
            "sign gives a str",
        ),
        "one at a time": (
            [
                (SEALED, 'return "sealed" if seal.signature == self.last else ""'),
                ("return hmac", "self.last = hmac"),
                (
                    '"sha256")',
                    '"sha256")\n        out = self.last\n'
                    "        time.sleep(0.01)\n        return out",
                ),
            ],
            "several threads at once",
        ),
    },
    "tool": {
        "no help": ([('"Look at plans."', '""')], "its help is ''"),
        "lines": ([('"Look at plans."', '"Look\\nat plans."')], "say in one line what it does"),
        "no command": ([("lambda: command", "lambda: 3")], "its command() gives a int"),
        "no docstring": (
            [('    """Their steps."""', "    pass")],
            "`audit steps --help` does not say what it does",
        ),
        "no --help": (
            [('command("steps")', 'command("steps", add_help_option=False)')],
            "`audit steps --help` exits with 2",
        ),
        "any option": (
            [
                (
                    '@click.group("audit")',
                    "class Free(click.Group):\n    def main(self, *args, **named):\n        pass\n\n\n"
                    '@click.group("audit", cls=Free)',
                )
            ],
            "--no-such-option-of-any-tool` exits with 0, not 2",
        ),
        "a note": (
            [
                (
                    "lambda: command",
                    "lambda: Path(__file__).with_name('seen').write_text('1') and command",
                )
            ],
            "making its command writes ",
        ),
        "an error": ([("lambda: command", "lambda: 1 / 0")], "ZeroDivisionError"),
    },
}
CASES = [(check, name) for check, faults in FAULTS.items() for name in faults]


def found(site: Site, check: str, *pairs: tuple[str, str]) -> Outcome:
    """What a check says of a pack with its part, after these changes."""
    part = RIGHT[check]
    text = part.text
    for old, new in pairs:
        assert text.count(old) >= 1, old
        text = text.replace(old, new)
    hooks = HOOK.format(hook=part.hook, name="parts", given="parts")
    if check == "device":
        hooks += HOOK.format(hook="allocators", name="Memory", given="[Memory()]")
    changes = {"layers.py": lambda old: old + HEAD + text, "__init__.py": lambda old: old + hooks}
    return outcome(CHECKS[check], site.new("acme-part", changes, layer=True))


@pytest.mark.parametrize("check", RIGHT)
def test_a_part_that_is_right_passes(site: Site, check: str) -> None:
    got = found(site, check)
    assert got.state == PASSED, got.said
    assert got.said.startswith("1 "), got.said


@pytest.mark.parametrize(("check", "name"), CASES)
def test_a_fault_is_caught(site: Site, check: str, name: str) -> None:
    pairs, said = FAULTS[check][name]
    got = found(site, check, *pairs)
    assert got.state == FAILED, got.said
    assert said in got.said
    assert f"CHECKS[{check!r}]" in got.script


@pytest.mark.parametrize("check", RIGHT)
def test_what_is_not_there_is_said(site: Site, check: str) -> None:
    got = outcome(CHECKS[check], site.new("acme-swish", layer=True))
    noun = RIGHT[check].hook.replace("_", " ")
    assert (got.state, got.said) == (NOTHING, f"the pack has no {noun}")


def test_all_that_is_wrong_with_a_part_is_named(site: Site) -> None:
    pairs = [
        p
        for name in ("no power of two", "any target", "no name")
        for p in FAULTS["device"][name][0]
    ]
    got = found(site, "device", *pairs)
    for said in ("its alignment is 48", "target takes a model", "its properties have no name"):
        assert said in got.said


def test_what_a_compiler_is_over_may_be_missing(site: Site) -> None:
    got = found(site, "compiler", ('return ""', 'return "install upper"'))
    assert (got.state, got.said) == ("skipped", "acme_part.upper@1 (install upper)")
    site.close()


def test_who_watches_sees_what_changes(tmp_path: os.PathLike[str]) -> None:
    path = os.path.join(tmp_path, "a")
    with Watch() as watch:
        with open(path, "w") as f:
            f.write("1")
        with open(path) as f:
            f.read()
        os.remove(path)
    open(path, "w").close()
    assert watch.seen == [f"writes {path}", f"removes {path}"]
