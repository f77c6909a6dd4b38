"""Sessions: groups, laziness, who is in, what is told."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

import pytest
from plugin_things import Thing

from tactix.base.errors import ConfigError, PluginError
from tactix.plugins import loader
from tactix.plugins.hookspecs import hookimpl
from tactix.plugins.identity import Provider
from tactix.plugins.registry import KINDS, MissingKey
from tactix.plugins.session import Session
from tactix_tools.pack_info import packs

SWISH = """
@hookimpl
def tactix_layers(): return [O(key="acme.Swish@1")]
"""
BOOM = "raise ImportError('libfoo.so.1: cannot open')"


def obj(key: str, **more: Any) -> Thing:
    return Thing(key=key, **more)


def test_structural_layers_need_no_plugin(site: Any) -> None:
    for group in ("build", "runtime"):
        session = Session(group)
        assert list(session.layers) == ["tactix.Fused@1", "tactix.Reformat@1"]
        assert session.layers.provider("tactix.Fused@1").dist == "tactix"
        assert packs(session) == []


def test_nothing_happens_before_first_use(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    site.pack("acme-trt", build=SWISH)
    scans: list[int] = []
    monkeypatch.setattr(loader, "scan", lambda: scans.append(1) or ())
    session = Session(enable=["tactix"])
    session.enable("tactix")
    assert not scans
    assert session.layers
    assert session.rules == {}
    assert len(scans) == 1


def test_hooks_are_called_when_their_registry_is_touched(site: Any) -> None:
    site.pack(
        "acme-trt", build=SWISH + "\n@hookimpl\ndef tactix_rules(): raise RuntimeError('called')"
    )
    session = Session()
    assert "acme_trt_build" not in sys.modules
    assert "acme.Swish@1" in session.layers
    assert session.layers is session.layers
    assert session.failures() == ()
    assert len(session.rules) == 0
    assert [t.phase for t in session.failures()] == ["tactix_rules"]


def test_the_build_door_opens_both_the_runtime_door_one(site: Any) -> None:
    site.pack(
        "acme-trt",
        build=SWISH,
        runtime='@hookimpl\ndef tactix_devices(): return [O(key="acme.npu@1")]',
    )
    build, runtime = Session("build"), Session("runtime")
    assert "acme.Swish@1" in build.layers
    assert "acme.npu@1" in build.devices
    assert build.devices.provider("acme.npu@1") == Provider("acme-trt", "1.0")
    assert "acme.Swish@1" not in runtime.layers
    assert "acme.npu@1" in runtime.devices
    with pytest.raises(
        ConfigError, match=r"tactix.runtime.v1 has no tactics. Use Session\(group='build'\)"
    ):
        runtime.tactics  # noqa: B018
    assert build.digest != runtime.digest
    with pytest.raises(AttributeError, match="no 'kernels'"):
        build.kernels  # noqa: B018
    with pytest.raises(
        ConfigError, match=r"no entry-point group 'back'. There are: build, runtime"
    ):
        Session("back")


def test_a_runtime_session_leaves_build_modules_alone(site: Any) -> None:
    site.pack("acme-trt", build=BOOM, runtime=SWISH)
    session = Session("runtime", strict=True)
    assert "acme.Swish@1" in session.layers
    assert "acme_trt_build" not in sys.modules


def test_one_module_at_both_doors(site: Any) -> None:
    both = "\n@hookimpl\ndef tactix_launchers(): return [O(key='acme.run@1')]"
    tactic = "\n@hookimpl\ndef tactix_tactics(): return [O(key='acme.gemm@1', implements=())]"
    site.module("acme_one", SWISH + both + tactic)
    site.dist("acme", "1.0", {f"tactix.{d}.v1": {"acme": "acme_one"} for d in ("build", "runtime")})
    session = Session(strict=True)
    assert (len(session.layers), len(session.launchers), len(session.tactics)) == (3, 1, 1)
    (info,) = packs(session)
    assert info.groups == ("build", "runtime")
    assert info.counts == {"layers": 1, "launchers": 1, "tactics": 1}
    assert "acme.run@1" in Session("runtime", strict=True).launchers


def test_the_same_layers_at_both_doors_count_once(site: Any) -> None:
    site.pack("acme-trt", build=SWISH, runtime="from acme_trt_build import tactix_layers")
    assert "acme.Swish@1" in Session(strict=True).layers
    again = "from zeta_shared import swish\n@hookimpl\ndef tactix_layers(): return [swish]"
    site.module("zeta_shared", "swish = O(key='zeta.Swish@1')")
    site.pack("zeta", build=again, runtime=again)
    loader.reset_scan()
    assert "zeta.Swish@1" in Session(strict=True).layers


def test_different_layers_of_one_key_at_both_doors_do_not(site: Any) -> None:
    site.pack("acme-trt", build=SWISH, runtime=SWISH)
    with pytest.raises(
        PluginError,
        match=r"'acme.Swish@1' is left out: plugin 'acme' \(acme-trt 1.0\) provides it twice",
    ):
        Session().layers["acme.Swish@1"]


def test_an_unknown_namespace_is_told(site: Any, given: Any) -> None:
    session = Session(plugins=[given("acme", layers=["acme.A@1"])])
    with pytest.raises(
        MissingKey,
        match=r"'acne.A@1' is unavailable: there is no plugin 'acne'. Did you mean 'acme'\?",
    ):
        session.layers["acne.A@1"]


def test_digest_sees_versions_but_not_the_order_of_installing(site: Any) -> None:
    site.pack("acme-trt", "1.0", build=SWISH)
    site.pack("zeta", "1.0", runtime='@hookimpl\ndef tactix_layers(): return [O(key="zeta.A@1")]')
    first = Session().digest
    assert Session().digest == first
    scanned = loader.scan()
    reverse = scanned[::-1]
    with pytest.MonkeyPatch.context() as m:
        m.setattr(loader, "scan", lambda: reverse)
        assert Session().digest == first
    info = next(site.root.glob("zeta-1.0.dist-info"))
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: zeta\nVersion: 1.1\n")
    loader.reset_scan()
    assert Session().digest != first


def test_threads_load_once(site: Any) -> None:
    calls: list[str] = []
    start = threading.Barrier(8)

    class Slow:
        @hookimpl
        def tactix_layers(self) -> list[Any]:
            calls.append("layers")
            time.sleep(0.05)
            return [obj("acme.A@1")]

        @hookimpl
        def tactix_devices(self) -> list[Any]:
            calls.append("devices")
            return [obj("acme.npu@1")]

    site.pack("zeta", build="import time\ntime.sleep(0.05)\nimport zeta_count\nzeta_count.n += 1")
    site.module("zeta_count", "n = 0")
    session = Session(plugins=[("acme", Slow())], strict=True)
    seen: list[tuple[int, int]] = []

    def use() -> None:
        start.wait()
        seen.append((id(session.layers), id(session.devices)))

    threads = [threading.Thread(target=use) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(30)
    assert len(seen) == 8
    assert len(set(seen)) == 1
    assert sorted(calls) == ["devices", "layers"]
    import zeta_count  # type: ignore[import-not-found]

    assert zeta_count.n == 1


def test_trace(
    site: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    site.pack("acme-trt", build=SWISH)
    assert len(Session().layers) == 3
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("TACTIX_TRACE_PLUGINS", "1")
    assert len(Session().layers) == 3
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("[tactix] [trace] import of plugin 'acme' (acme-trt 1.0): ")
    assert lines[1].startswith(
        "[tactix] [trace] tactix_layers of plugin 'acme' (acme-trt 1.0) gave 1: "
    )
    assert all(line.endswith(" ms") for line in lines)


def test_every_registry_is_an_attribute(site: Any) -> None:
    session = Session()
    for name, kind in KINDS.items():
        assert getattr(session, name).kind is kind
        assert name in Session.__annotations__


def test_digest_of_a_provider_is_of_its_files(site: Any) -> None:
    site.pack("acme-trt", build=SWISH)
    info = next(site.root.glob("acme_trt-*.dist-info"))
    (info / "RECORD").write_text(f"acme_trt_build.py,,\n{info.name}/RECORD,,\n")
    first = Session().layers.provider("acme.Swish@1").digest
    assert len(first) == 64
    with (site.root / "acme_trt_build.py").open("a") as f:
        f.write("# changed")
    assert Session().layers.provider("acme.Swish@1").digest == first, "a process reads it once"
    loader.reset_scan()
    assert Session().layers.provider("acme.Swish@1").digest != first
