from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pluggy
import pytest

from tactix.base.errors import PluginError
from tactix.plugins import loader
from tactix.plugins._metadata import metadata
from tactix.plugins.hookspecs import API, HOOKS, hookimpl
from tactix.plugins.pack import MARK, BasePack, plugin_in
from tactix.plugins.session import Session
from tactix_tools.pack_info import packs

parse = pluggy.PluginManager("tactix").parse_hookimpl_opts


def module(**attributes: Any) -> ModuleType:
    out = ModuleType("made")
    vars(out).update(attributes)
    return out


def nothing() -> Callable[[], list[Any]]:
    """A function of its own that gives nothing."""
    return lambda: list()  # noqa: C408


@hookimpl
def tactix_layers() -> list[Any]:
    return []


@hookimpl
def tactix_launchers() -> list[Any]:
    return []


# -- the scan ------------------------------------------------------------------------------------


def test_scan_is_sorted_and_imports_nothing(site: Any) -> None:
    boom = "raise RuntimeError('imported')"
    for dist in ("zeta", "acme-trt", "mid-pack"):
        site.pack(dist, "1.5", build=boom, runtime=boom)
    found = loader.scan()
    assert [(f.namespace, f.group, f.major) for f in found] == [
        (n, d, 1) for n in ("acme", "mid", "zeta") for d in ("build", "runtime")
    ]
    assert [str(f.provider) for f in found[:3]] == ["acme-trt 1.5", "acme-trt 1.5", "mid-pack 1.5"]
    assert found[0].module == "acme_trt_build"


def test_500_distributions_are_looked_at_once(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for i in range(498):
        groups = {"console_scripts": {f"tool{i}": f"pkg{i}:main"}} if i % 2 else {}
        site.dist(f"pkg{i}", "1.0", groups)
    site.pack("acme-trt", build=KEYED_LAYER)
    site.pack("zeta", runtime="")
    reads: Counter[str] = Counter()
    original = metadata.PathDistribution.read_text

    def counted(self: Any, name: str) -> str | None:
        reads[name] += 1
        return original(self, name)

    monkeypatch.setattr(metadata.PathDistribution, "read_text", counted)
    session = Session()
    assert not reads, "nothing is scanned before something is asked for"
    assert "acme.Swish@1" in session.layers
    assert reads["entry_points.txt"] <= 500 + 4, (
        "each distribution once, and again where a group is tactix's"
    )
    assert reads["METADATA"] <= 2 * 4, "metadata of the two packs alone, for name and version"
    before = reads.copy()
    for group in ("build", "runtime"):
        other = Session(group)
        assert packs(other)
        assert len(other.layers) >= 2
    assert reads == before, "a process scans once"
    loader.reset_scan()
    assert len(loader.scan()) == 2
    assert reads["entry_points.txt"] > before["entry_points.txt"]


KEYED_LAYER = """
@hookimpl
def tactix_layers(): return [O(key="acme.Swish@1")]
"""


def test_of_two_copies_the_first_on_the_path_counts(
    site: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    site.pack("acme-trt", "2.0", build=KEYED_LAYER)
    older = type(site)(tmp_path / "older")
    older.root.mkdir()
    older.pack("Acme_TRT", "1.0", build=KEYED_LAYER, namespace="acme")
    both = [str(site.root), str(older.root)]
    find = metadata.distributions.func  # type: ignore[attr-defined]
    monkeypatch.setattr(metadata, "distributions", lambda: find(path=both))
    assert {str(f.provider) for f in loader.scan()} == {"acme-trt 2.0"}


def test_metadata_that_cannot_be_read_hurt_nobody_else(site: Any, log: Any) -> None:
    site.pack("acme-trt", build=KEYED_LAYER)
    info = site.dist("zeta", "1.0", {"tactix.build.v1": {"zeta": "zeta_build"}})
    (info / "METADATA").unlink()
    session = Session(logger=log)
    assert "acme.Swish@1" in session.layers
    (t,) = session.failures()
    assert "the metadata of a distribution" in t.reason
    assert t.hint == "Install it again"
    assert [i.status for i in packs(session)] == ["failed", "active"]


# -- checks of a loaded plugin -------------------------------------------------------------------


@pytest.mark.parametrize("asked", [(API[0], 0), API])
def test_api_that_fits(asked: tuple[int, int]) -> None:
    loader.check_api(module(TACTIX_API=asked))
    loader.check_api(module())


@pytest.mark.parametrize(
    ("asked", "message"),
    [((API[0], API[1] + 1), rf"it needs plugin API {API[0]}\.{API[1] + 1}, this tactix has {API[0]}\.{API[1]}"),
     ((API[0] + 1, 0), "it needs plugin API 2.0"), ("1.0", "Write it as two integers"), ((1,), "two integers")],
)  # fmt: skip
def test_api_that_does_not_fit(asked: Any, message: str) -> None:
    with pytest.raises(PluginError, match=message):
        loader.check_api(module(TACTIX_API=asked))


def test_good_hooks_pass() -> None:
    loader.check_hooks(module(tactix_layers=tactix_layers), ["build"], parse)
    loader.check_hooks(
        module(tactix_layers=tactix_layers, tactix_launchers=tactix_launchers), HOOKS, parse
    )
    renamed = hookimpl(specname="tactix_layers")(nothing())
    loader.check_hooks(module(layers_of_mine=renamed), ["runtime"], parse)
    later = hookimpl(optionalhook=True)(nothing())
    loader.check_hooks(module(tactix_of_a_later_minor=later), ["build"], parse)


def test_a_misspelt_hook_is_told() -> None:
    with pytest.raises(
        PluginError, match=r"unknown hook 'tactix_layer'. Did you mean 'tactix_layers'\?"
    ):
        loader.check_hooks(module(tactix_layer=hookimpl(nothing())), ["build"], parse)
    with pytest.raises(PluginError, match=r"unknown hook 'zzz'. There are: tactix_allocators, "):
        loader.check_hooks(module(zzz=hookimpl(nothing())), ["build"], parse)


def test_an_unmarked_hook_is_told() -> None:
    with pytest.raises(PluginError, match=r"tactix_layers is not marked. Write @hookimpl above it"):
        loader.check_hooks(module(tactix_layers=nothing()), ["build"], parse)


def test_a_hook_of_the_other_door_is_told() -> None:
    with pytest.raises(
        PluginError, match=r"_launchers belongs to the entry-point group tactix\.runtime\.v1\. Have"
    ):
        loader.check_hooks(module(tactix_launchers=tactix_launchers), ["build"], parse)
    with pytest.raises(
        PluginError, match=r"tactix_tools belongs to the entry-point group tactix\.build\.v1"
    ):
        loader.check_hooks(module(tactix_tools=hookimpl(nothing())), ["runtime"], parse)


def test_a_plugin_of_another_namespace_than_it_is_found_by_is_told() -> None:
    plugin = module(TACTIX_NAMESPACE="acme")
    loader.check_called(plugin, "acme")
    with pytest.raises(PluginError, match=r"of the namespace 'acme': it is found.* as 'other'"):
        loader.check_called(plugin, "other")


@pytest.mark.parametrize("option", ["wrapper", "hookwrapper"])
def test_wrappers_are_refused(option: str) -> None:
    @hookimpl(**{option: True})
    def tactix_rules() -> Any:
        return (yield)

    with pytest.raises(
        PluginError, match="tactix_rules is a wrapper: no plugin changes what another gives"
    ):
        loader.check_hooks(module(tactix_rules=tactix_rules), ["build"], parse)


def test_arguments_are_refused() -> None:
    with pytest.raises(PluginError, match=r"tactix_rules takes config. Hooks get no arguments"):
        loader.check_hooks(module(tactix_rules=hookimpl(lambda config: [])), ["build"], parse)


def test_text_of_a_failure() -> None:
    provider = SimpleNamespace(dist="acme-trt", version="0.4.2")
    p: Any = SimpleNamespace(namespace="acme", name="acme", provider=provider, cure="")
    t = loader.plugin_failure(p, "import", ImportError("libfoo.so.1"))
    assert t.reason == "plugin 'acme' (acme-trt 0.4.2) failed to load: ImportError: libfoo.so.1"
    e = t.exception()
    assert (e.dist, e.version, e.phase, e.__cause__) == ("acme-trt", "0.4.2", "import", t.error)
    assert str(e).endswith("Fix that, or disable it with TACTIX_DISABLE=acme")
    t = loader.plugin_failure(p, "tactix_rules", PluginError("bad key", do="Mend it"))
    assert t.reason == "plugin 'acme' (acme-trt 0.4.2) failed in tactix_rules: bad key. Mend it"


def test_a_module_without_hooks_stands_for_its_pack() -> None:
    pack = BasePack("acme")
    pack.launcher(lambda: SimpleNamespace(key="acme.run@1"))
    for given in (module(pack=pack), ("acme", module(pack=pack, again=pack)), pack):
        session = Session(plugins=[given], discover=False, strict=True)
        assert list(session.launchers) == ["acme.run@1"]


def test_hooks_beside_a_pack_and_several_packs_are_refused() -> None:
    one, other = BasePack("acme"), BasePack("acme")
    both = module(one=one, tactix_layers=tactix_layers)
    with pytest.raises(
        PluginError, match=r"both the pack 'one' and bare hooks: tactix_layers.*methods of 'one'"
    ):
        plugin_in(both)
    with pytest.raises(PluginError, match="both the pack"):
        Session(plugins=[both], discover=False)
    with pytest.raises(PluginError, match=r"several packs: one, other.*Name one, as in .*:one"):
        plugin_in(module(one=one, other=other))
    hooks = module(tactix_layers=tactix_layers)
    assert plugin_in(hooks) is hooks


def test_a_hook_set_on_a_pack_that_has_its_own_is_refused() -> None:
    before, after = BasePack("acme"), BasePack("acme")
    after.launcher(SimpleNamespace(key="acme.run@1"))
    vars(after)["tactix_launchers"] = tactix_layers
    with pytest.raises(PluginError, match=r"a hook tactix_launchers beside .* Give all of it to"):
        Session(plugins=[after], discover=False)
    vars(before)["tactix_launchers"] = tactix_layers
    with pytest.raises(PluginError, match=r"test_loader.py:\d+: .*a hook tactix_launchers beside"):
        before.launcher(SimpleNamespace(key="acme.run@1"))


def test_an_entry_point_to_what_is_not_there_is_named(site: Any) -> None:
    site.module("acme_m", "pack = 1")
    site.dist("acme", "1.0", {"tactix.build.v1": {"acme": "acme_m:pock"}})
    (found,) = loader.scan()
    with pytest.raises(
        PluginError, match=r"acme = 'acme_m:pock' of tactix.build.v1: .*mean 'pack'"
    ):
        found.load()


def test_an_entry_point_may_name_the_module_of_a_pack(site: Any) -> None:
    site.pack("acme", runtime="from tactix.plugins.pack import BasePack\npack = BasePack('acme')")
    (found,) = loader.scan()
    assert isinstance(found.load(), BasePack)


def test_a_pack_marks_its_hooks_as_the_marker_does() -> None:
    assert vars(hookimpl(nothing())).keys() == {MARK}
    pack = BasePack("acme")
    pack.rule(nothing())
    found = [name for name in dir(pack) if parse(pack, name) is not None]
    assert found == ["tactix_rules"]
