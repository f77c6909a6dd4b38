from __future__ import annotations

import os
import random
import subprocess
import sys
from types import SimpleNamespace
from typing import Any, cast

import pytest
from plugin_things import Thing

from tactix.base.errors import PlanCompatibilityError, PluginError
from tactix.contracts.flavour import Flavour
from tactix.contracts.runtime import RuntimeView
from tactix.plugins.hookspecs import AllHooks, hooks_of
from tactix.plugins.identity import Provider
from tactix.plugins.registry import KINDS, Entry, MissingKey, Registry

ACME = Provider("acme-trt", "0.4.2")
ZETA = Provider("zeta", "2.0")


def obj(key: str) -> Thing:
    return Thing(key=key)


def entries(kind: str, namespace: str, provider: Provider, *keys: str) -> list[Entry[Any]]:
    return KINDS[kind].entries(namespace, provider, [obj(k) for k in keys])


def test_a_registry_for_every_hook() -> None:
    assert {f"tactix_{n}" for n in KINDS} == hooks_of(AllHooks)


def test_mapping_sorted_by_key() -> None:
    r = Registry(
        KINDS["layers"], entries("layers", "acme", ACME, "acme.B@1", "acme.A@2", "acme.A@1")
    )
    assert list(r) == ["acme.A@1", "acme.A@2", "acme.B@1"]
    assert [o.key for o in r.values()] == list(r)
    assert len(r) == 3
    assert "acme.B@1" in r
    assert "acme.C@1" not in r
    assert r.get("acme.C@1") is None
    assert r.get("acme.C@1", 7) == 7
    assert r.get("acme.B@1").key == "acme.B@1"
    assert r.provider("acme.B@1") is ACME
    assert r.entry("acme.B@1").namespace == "acme"


def test_a_registry_cannot_be_changed() -> None:
    r = Registry(KINDS["layers"], entries("layers", "acme", ACME, "acme.A@1"))
    with pytest.raises(TypeError):
        r["acme.B@1"] = obj("acme.B@1")  # type: ignore[index]
    with pytest.raises(TypeError):
        del r["acme.A@1"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("kind", "key"),
    [("layers", "acme.Swish@1"), ("importers", "acme.caffe@1"), ("converters", "onnx:acme::Swish@1"),
     ("converters", "onnx:::Relu@14"), ("converters", "onnx:com.acme::Relu@14"), ("rules", "acme.swish"),
     ("rules", "acme.fuse.swish"), ("tactics", "acme.gemm@2"), ("compilers", "acme.cc@1"),
     ("calibrators", "percentile"), ("calibrators", "acme.percentile"), ("tools", "acme.profile"),
     ("launchers", "acme.cpu.elf@1"), ("devices", "acme.npu@1"),
     ("allocators", "pool"), ("allocators", "acme.pool"), ("flavours", "acme.lean@2")],
)  # fmt: skip
def test_keys_that_fit(kind: str, key: str) -> None:
    (e,) = entries(kind, "acme", ACME, key)
    assert (e.key, e.namespace, e.provider) == (key, "acme", ACME)


@pytest.mark.parametrize(
    ("kind", "key", "message"),
    [("layers", "acme.Swish", "namespace.Name@version"), ("layers", "zeta.Swish@1", "in another namespace"),
     ("layers", "tactix.Swish@1", "in another namespace"), ("rules", "acme.swish@1", "Write it namespace.name"),
     ("rules", "zeta.swish", "in another namespace"), ("tactics", "gemm", "namespace.name@version"),
     ("converters", "acme::Swish@1", "format:domain::Op@since"), ("converters", "onnx:acme::Swish", "format:domain"),
     ("tools", "acme profile", "Write it name"), ("allocators", "zeta.pool", "in another namespace"),
     ("flavours", "zeta.lean@1", "in another namespace"), ("devices", "cpu", "namespace.name@version")],
)  # fmt: skip
def test_keys_that_do_not_fit(kind: str, key: str, message: str) -> None:
    with pytest.raises(PluginError, match=message) as e:
        entries(kind, "acme", ACME, key)
    assert e.value.key == key


@pytest.mark.parametrize(
    ("given", "message"),
    [(None, "gave a NoneType, not a list of layers"), ({}, "gave a dict"), ("acme.A@1", "gave a str"),
     ([Thing], "Thing is a class, not a layer. Give an instance: Thing()"),
     ([object()], "no layer: it has no key"), ([obj(3)], "it has no key")],  # type: ignore[arg-type]
)  # fmt: skip
def test_what_is_no_list_of_objects(given: Any, message: str) -> None:
    with pytest.raises(PluginError) as e:
        KINDS["layers"].entries("acme", ACME, given)
    assert message in str(e.value)


class Bare:
    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


@pytest.mark.parametrize(
    ("kind", "given", "message"),
    [("layers", Bare(key="acme.Swish@1"), "is no layer: it is no tactix_sdk.Layer"),
     ("rules", Bare(key="acme.swish"), "is no rule: it is no tactix_sdk.Rule"),
     ("tactics", Bare(key="acme.gemm@1"), "is no tactic: it is no tactix_sdk.Tactic"),
     ("importers", Bare(key="acme.text@1"), "is no importer: it is no tactix_sdk.Importer"),
     ("converters", Bare(key="onnx:acme::Swish@1"), "is no converter: it is no tactix_sdk.Converter"),
     *(("tactics", Thing(key="acme.gemm@1", implements=names), "Write a tuple of layers' keys")
       for names in (None, "tactix.MatMul@1", (1,)))],
)  # fmt: skip
def test_what_is_not_made_of_its_contract_is_refused(kind: str, given: Any, message: str) -> None:
    with pytest.raises(PluginError, match=message):
        KINDS[kind].entries("acme", ACME, [given])


def test_a_key_from_two_providers_names_both_and_both_cures() -> None:
    both = [
        *entries("flavours", "zeta", ZETA, "fast", "z"),
        *entries("flavours", "acme", ACME, "fast", "a"),
    ]
    for order in (both, both[::-1]):
        found = Registry(KINDS["flavours"], order)
        assert list(found) == ["a", "z"]
        error = found.clashes["fast"].error()
        assert str(error) == (
            "flavour 'fast' is left out: it is provided by plugin 'acme' (acme-trt 0.4.2) and by plugin 'zeta' "
            "(zeta 2.0). Disable or uninstall one: TACTIX_DISABLE=acme-trt or TACTIX_DISABLE=zeta"
        )
        assert error.key == "fast"


def test_a_key_twice_from_one_provider() -> None:
    found = Registry(KINDS["rules"], entries("rules", "acme", ACME, "acme.a", "acme.a", "acme.b"))
    assert list(found) == ["acme.b"]
    with pytest.raises(
        MissingKey,
        match=r"plugin 'acme' \(acme-trt 0\.4\.2\) provides it twice\. Give each its own key",
    ):
        found["acme.a"]


def test_missing_keys_are_explained() -> None:
    asked = []

    def explain(namespace: str) -> tuple[str, str]:
        asked.append(namespace)
        return ("the reason", "Do this") if namespace == "broken" else ("", "")

    r = Registry(KINDS["layers"], entries("layers", "acme", ACME, "acme.Swish@1"), explain)
    with pytest.raises(MissingKey) as e:
        r["broken.Swish@1"]
    assert str(e.value) == "layer 'broken.Swish@1' is unavailable: the reason. Do this"
    with pytest.raises(KeyError):
        r["acme.Swisch@1"]
    with pytest.raises(
        PluginError, match=r"there is no layer 'acme.Swisch@1'. Did you mean 'acme.Swish@1'\?"
    ):
        r["acme.Swisch@1"]
    with pytest.raises(MissingKey, match=r"there is no layer 'qqq'. There are: acme.Swish@1"):
        r["qqq"]
    with pytest.raises(MissingKey, match="Install a plugin that provides one"):
        Registry(KINDS["tools"], [])["profile"]
    assert asked == ["broken", "acme", "acme", "tactix"]


def test_digest_of_keys_and_providers_alone() -> None:
    keys = [f"acme.L{i}@1" for i in range(50)]
    found = entries("layers", "acme", ACME, *keys)
    first = Registry(KINDS["layers"], found).digest
    rng = random.Random(5)
    for _ in range(5):
        rng.shuffle(found)
        assert Registry(KINDS["layers"], found).digest == first
    assert Registry(KINDS["layers"], found[1:]).digest != first
    newer = entries("layers", "acme", Provider("acme-trt", "0.4.3"), *keys)
    assert Registry(KINDS["layers"], newer).digest != first
    other = entries("layers", "acme", Provider("acme", "0.4.2"), *keys)
    assert Registry(KINDS["layers"], other).digest != first


DIGEST = """
from plugin_things import Thing as O
from tactix.plugins.hookspecs import hookimpl
from tactix.plugins.session import Session

class Pack:
    @hookimpl
    def tactix_layers(self): return [O(key=k) for k in {f"acme.L{i}@1" for i in range(40)}]
    @hookimpl
    def tactix_tactics(self): return [O(key=k, implements=()) for k in {f"acme.t{i}@1" for i in range(40)}]

class Other:
    @hookimpl
    def tactix_tools(self): return [O(key=k) for k in {f"tool{i}" for i in range(40)}]

packs = [("acme", Pack()), ("zeta", Other())]
if hash("order") % 2:
    packs.reverse()
session = Session(plugins=packs, discover=False)
tactics = [t.key for t in session.active_tactics()]
print([*{f"acme.L{i}@1" for i in range(40)}][:3], session.digest, tactics, sep="|")
"""


def test_order_of_sets_and_plugins_changes_nothing() -> None:
    runs = []
    for seed in ("1", "2", "3", "4"):
        paths = os.pathsep.join(
            filter(None, (os.path.dirname(__file__), os.environ.get("PYTHONPATH")))
        )
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": paths}
        out = subprocess.run(
            [sys.executable, "-c", DIGEST], env=env, capture_output=True, text=True, check=True
        )
        runs.append(out.stdout.strip().split("|"))
    assert len({r[0] for r in runs}) > 1, "the hash seed must change the order that the packs give"
    assert len({(r[1], r[2]) for r in runs}) == 1


def test_a_flavour_answers_all_that_is_asked_of_one() -> None:
    class Loads(Flavour[Any]):
        key = "acme.loads"

        def load(self, plan: Any, session: Any, device: Any, options: Any) -> Any:
            return f"engine of {plan}"

    class Reads:
        def read(self, source: Any, verify: Any) -> Any:
            return f"plan in {source}, {verify}"

        def load(self, plan: Any) -> Any:
            return flavour.load(plan, None, None, None)

    flavour, runtime = Loads(), cast("RuntimeView[Any]", Reads())
    assert cast("str", flavour.open(runtime, "file", True)) == "engine of plan in file, True"
    assert (flavour.hands_over(runtime, "file"), flavour.host) == (False, "")
    with pytest.raises(PlanCompatibilityError, match=r"'acme\.loads' runs no references"):
        flavour.on_references("plan", [])
    with pytest.raises(TypeError, match="abstract"):
        Flavour()  # type: ignore[abstract]


def test_what_is_no_flavour_is_refused() -> None:
    with pytest.raises(PluginError, match=r"it is no tactix_sdk\.Flavour"):
        KINDS["flavours"].entries("acme", ACME, [SimpleNamespace(key="acme.fast")])
