"""What needs a vendor's library bids by default, and not for plans that shall outlive it."""

from __future__ import annotations

from typing import Any

import pytest
from cuda_engine import SumTactic, config, sums

import tactix
from tactix.base.errors import ConfigError
from tactix.config import BuilderFlag
from tactix.contracts.tactic import Tactic
from tactix.plugins.hookspecs import hookimpl
from tactix_cuda import nvrtc

OWN, VENDOR = SumTactic("test.own@1", "+"), SumTactic("test.vendor@1", "+")
VENDOR.vendor, VENDOR.source = True, "vendor"


class Pack:
    @hookimpl
    def tactix_tactics(self) -> list[Tactic]:
        return [OWN, VENDOR]


def builder() -> tactix.Builder:
    session = tactix.Session(plugins=[("test", Pack())], enable=["test"])
    session.active_rules = list  # type: ignore[method-assign]  # sums stay apart
    return tactix.Builder(session=session)


def bidders(**fields: Any) -> set[str]:
    made = builder()
    given = config(target="sm_90", builder_optimization_level=0, tactic_sources=None, **fields)
    nodes = made.build_plan(sums(made), given).ledger["nodes"].values()
    return {c["tactic"] for n in nodes for c in n["candidates"] if c["tactic"].startswith("test.")}


@pytest.mark.skipif(bool(nvrtc.why_missing()), reason="needs NVRTC")
def test_vendors_bid_by_default_and_not_under_the_flag() -> None:
    assert bidders() == {"test.own@1", "test.vendor@1"}
    assert bidders(flags={BuilderFlag.VERSION_COMPATIBLE}) == {"test.own@1"}


def test_naming_a_vendors_source_contradicts_the_flag() -> None:
    made = builder()
    given = config(
        target="sm_90", tactic_sources={"vendor"}, flags={BuilderFlag.VERSION_COMPATIBLE}
    )
    with pytest.raises(ConfigError, match="no tactic source 'vendor'"):
        made.build_plan(sums(made), given)


def test_the_libraries_are_vendors_and_nothing_else_is() -> None:
    tactics = tactix.Session().tactics.values()
    assert {t.source for t in tactics if t.vendor} == {"cublaslt", "cudnn"}
