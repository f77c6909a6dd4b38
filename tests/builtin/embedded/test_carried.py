"""What plans bring: wheels in them, imported from memory, each content apart."""

from __future__ import annotations

import hashlib
import io
import itertools
import sys
import tracemalloc
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

import tactix
from tactix.base.errors import PlanFormatError, PluginError
from tactix.plan import container, wheels
from tactix.plan.schema import Plan, Requirement, validate
from tactix.plugins.hookspecs import RUNTIME_GROUP
from tactix_runtime.embedded_packs import carried
from tactix_sdk.pack_files import PackFiles
from tactix_ship.embed import wheel_of as wheel_of_pack

PLUGIN = """
from tactix_sdk import Launcher, hookimpl
from acme_it.number import NUMBER
import acme_it.number as again
import acme_it.deep.most
from . import number
from .deep import most
assert again is number and again.NUMBER == NUMBER and acme_it.deep.most is most
class L(Launcher):
    key = "acme_it.run@1"
    number = NUMBER
@hookimpl
def tactix_launchers():
    return [L()]
"""
FILES = {"acme_it/__init__.py": "", "acme_it/plugin.py": PLUGIN, "acme_it/number.py": "NUMBER = 1",
         "acme_it/deep/__init__.py": "", "acme_it/deep/most.py": "from acme_it import number"}  # fmt: skip
POINTS = (("acme_it", "acme_it.plugin"),)
fresh = itertools.count(100)


def pack(files: Mapping[str, str] = FILES, points: Any = POINTS, **over: str) -> bytes:
    """A wheel with other files; no two have the same content."""
    texts = {
        **files,
        **{f"acme_it/{name}.py": text for name, text in over.items()},
        "unique.txt": str(next(fresh)),
    }
    return wheel_of_pack(
        PackFiles("acme-it", "1.0", {p: t.encode() for p, t in texts.items()}, points, frozenset())
    )


def holding(*wheels: bytes) -> Any:
    """As much of a plan as is looked at."""
    digests = [hashlib.sha256(w).hexdigest() for w in wheels]
    rows = tuple(
        Requirement(f"acme_it.run@{i + 1}", "acme-it", "1.0", d, True)
        for i, d in enumerate(digests)
    )
    return SimpleNamespace(requirements=rows, blobs=dict(zip(digests, wheels, strict=True)))


@pytest.fixture(scope="module")
def session() -> tactix.Session:
    return tactix.Session(group="runtime", only=[])


def launcher(wheel: bytes, session: Any) -> Any:
    return carried(holding(wheel), session).launchers["acme_it.run@1"]


def test_the_group_is_that_of_the_hooks() -> None:
    assert wheels.GROUP == RUNTIME_GROUP


def test_a_plan_without_packs_changes_no_session(session: Any) -> None:
    assert (
        carried(SimpleNamespace(requirements=(Requirement("a.b@1", "a", "1"),)), session) is session
    )


def test_it_comes_before_the_session_and_beside_it(session: Any) -> None:
    both = carried(holding(pack()), session)
    assert both.launchers["acme_it.run@1"].number == 1
    assert set(both.launchers) == {"acme_it.run@1", *session.launchers}
    assert len(both.launchers) == len(session.launchers) + 1
    assert both.launchers["tactix.cpu.elf@1"] is session.launchers["tactix.cpu.elf@1"]
    assert "acme_it.run@1" in both.launchers
    assert "acme_it.walk@1" not in both.launchers
    assert dict(both.layers) == dict(session.layers)
    assert both.devices is session.devices
    with pytest.raises(PluginError, match=r"acme_it\.walk@1"):
        both.launchers["acme_it.walk@1"]


def test_every_content_is_a_package_of_its_own(session: Any) -> None:
    one, two = pack(), pack(number="NUMBER = 2")
    assert [launcher(w, session).number for w in (one, two, one)] == [1, 2, 1]
    assert type(launcher(one, session)) is type(launcher(one, session))
    assert type(launcher(one, session)).__module__.endswith(".acme_it.plugin")
    assert "acme_it" not in sys.modules


def test_packs_of_one_plan_find_each_other(session: Any) -> None:
    other = {"acme_other.py": "from acme_it.number import NUMBER\nfrom tactix_sdk import Launcher, hookimpl\n"
             "class M(Launcher):\n    key = 'acme_other.run@1'\n    number = -NUMBER\n"
             "@hookimpl(specname='tactix_launchers')\ndef mine():\n    return [M()]\n"}  # fmt: skip
    both = carried(holding(pack(), pack(other, (("acme_other", "acme_other"),))), session)
    assert both.launchers["acme_other.run@1"].number == -1


def test_tracebacks_and_data_files(session: Any) -> None:
    import inspect
    import pkgutil

    found = type(launcher(pack(), session))
    assert "NUMBER" in inspect.getsource(sys.modules[found.__module__])
    assert (
        pkgutil.get_data(f"{found.__module__.rpartition('.')[0]}.deep", "most.py")
        == FILES["acme_it/deep/most.py"].encode()
    )


@pytest.mark.parametrize(
    ("over", "why"),
    [
        ({"number": "1 / 0"}, "ZeroDivisionError"),
        ({"number": "import sys; sys.exit(3)"}, "SystemExit"),
        ({"number": "import acme_nowhere"}, "acme_nowhere"),
        ({"number": "NUMBER ="}, "SyntaxError"),
        ({"plugin": PLUGIN.replace("[L()]", "[L().nothing]")}, "AttributeError"),
        ({"plugin": PLUGIN.replace("[L()]", "3")}, "TypeError"),
    ],
)
def test_a_pack_that_fails_is_told(over: dict[str, str], why: str, session: Any) -> None:
    with pytest.raises(PluginError, match=why) as e:
        list(carried(holding(pack(**over)), session).launchers)
    assert e.value.do


def test_an_entry_point_that_is_not_there(session: Any) -> None:
    with pytest.raises(PluginError, match="nothing"):
        carried(holding(pack(points=(("acme_it", "acme_it.plugin:nothing"),))), session)


def test_a_wheel_that_is_not_what_its_name_says(session: Any) -> None:
    plan = holding(pack())
    ((digest, wheel),) = plan.blobs.items()
    plan.blobs[digest] = wheel[:-1] + b"x"
    with pytest.raises(PlanFormatError, match="sha256"):
        carried(plan, session)


def zipped(*names: str, size: int = 1) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as z:
        for name in names:
            z.writestr(zipfile.ZipInfo(name), bytes(size), zipfile.ZIP_DEFLATED)
    return out.getvalue()


CHANGED = bytearray(zipped("a.py", size=500))
CHANGED[36] ^= 64


@pytest.mark.parametrize(
    "wheel",
    [
        b"", b"PK", b"PK\x05\x06" + bytes(17), zipped("../a.py"), zipped("a/../b.py"), zipped("/a.py"), zipped("a//b"),
        zipped("a.py", size=wheels.SIZE_LIMIT + 1), zipped("a.py")[:30], CHANGED,
        zipped("a.py", size=500).replace(b"\x08\x00", b"\x63\x00"),
    ],
)  # fmt: skip
def test_what_is_no_wheel(wheel: bytes, session: Any) -> None:
    with pytest.raises(PlanFormatError):
        carried(holding(wheel), session)


def test_every_truncation_is_told(session: Any) -> None:
    wheel = pack()
    for n in range(0, len(wheel), 7):
        with pytest.raises(PlanFormatError):
            wheels.unpack(wheel[:n], "a test")


def test_a_plan_must_hold_the_wheels_that_it_names() -> None:
    empty = Plan("p", (), (), (), (), ())
    row = Requirement("acme.x@1", "acme", "1", "no blob", True)
    assert validate(replace(empty, requirements=(replace(row, embedded=False),)))
    with pytest.raises(PlanFormatError, match="wheel"):
        validate(replace(empty, requirements=(row,)))
    kept = replace(empty, requirements=(row,), blobs={"no blob": b"wheel"})
    again = container.load(container.dump(kept))
    assert (again.requirements, bytes(again.blobs["no blob"])) == ((row,), b"wheel")


def test_used_libraries() -> None:
    rows = (Requirement("tactix.cpu.elf@1", "tactix", "0.1"), Requirement("b.x@1", "b-pack", "2"),
            Requirement("a.y@1", "a", "1"), Requirement("b.z@1", "b-pack", "2"),
            Requirement("c.z@1", "", ""))  # fmt: skip
    assert Plan("p", (), (), (), (), (), requirements=rows).get_used_plugin_libraries() == [
        "a==1",
        "b-pack==2",
    ]


def wheel_of(*files: tuple[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as z:
        for name, content in files:
            z.writestr(name, content)
    return out.getvalue()


def understated(wheel: bytes, size: int) -> bytes:
    """With that size in the headers of its one file."""
    out, at = bytearray(wheel), wheel.index(b"PK\x01\x02")
    for place in (22, at + 24):
        out[place : place + 4] = size.to_bytes(4, "little")
    return bytes(out)


def test_a_file_is_unpacked_no_further_than_to_its_size() -> None:
    """64 MB under the name of 10 bytes: not even to find that out is more than that taken."""
    bomb = understated(wheel_of(("a.py", bytes(64 << 20))), 10)
    tracemalloc.start()
    try:
        with pytest.raises(PlanFormatError, match="no wheel"):
            wheels.unpack(bomb, "a test")
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_a_file_that_is_shorter_than_its_size() -> None:
    with pytest.raises(PlanFormatError, match="no wheel"):
        wheels.unpack(understated(wheel_of(("a.py", b"x" * 100)), 1000), "a test")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_compression_that_unpacks_without_a_limit(method: int) -> None:
    with pytest.raises(PlanFormatError, match="compressed by method"):
        wheels.unpack(wheel_of(("a.py", b"x"), method=method), "a test")


@pytest.mark.parametrize("path", ["..\\x.py", "C:x.py"])
def test_paths_that_leave_the_folder_elsewhere(path: str) -> None:
    with pytest.raises(PlanFormatError, match="leaves the folder"):
        wheels.unpack(wheel_of((path, b"")), "a test")


def test_a_file_without_a_name() -> None:
    """For which ``zipfile`` itself has an IndexError."""
    wheel = bytearray(wheel_of(("a", b"x")))
    at = wheel.index(b"PK\x01\x02")
    wheel[at + 28 : at + 32] = b"\x00\x00\x01\x00"
    with pytest.raises(PlanFormatError):
        wheels.unpack(bytes(wheel), "a test")


def test_a_directory_of_many_files_is_not_read() -> None:
    with pytest.raises(PlanFormatError, match="10000 files"):
        wheels.unpack(wheel_of(*((f"{i}.py", b"") for i in range(10_001))), "a test")


@pytest.mark.parametrize("text", [b"no section", b"[a]\n[a]\n", b"\xff\xfe", b"[a]\nb\n"])
def test_entry_points_that_are_none(text: bytes) -> None:
    with pytest.raises(PlanFormatError, match="no entry points"):
        wheels.entries({"x.dist-info/entry_points.txt": text})
