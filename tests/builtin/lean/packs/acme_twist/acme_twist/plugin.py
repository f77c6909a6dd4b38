"""Rows backwards, by a launcher; and plus the factor, by the reference alone."""

from __future__ import annotations

import time
from typing import Any

import acme_twist.rows as rows
from acme_twist.rows import RowsLauncher
from tactix.base.errors import ShapeError
from tactix_sdk import KernelArtifact, Launcher, Layer, P, Rule, Tactic, Variant, hookimpl, var

from . import rows as same

assert same is rows

x = var("x")
twice = Rule("acme_twist.twice", P.acme_twist.Back(P.acme_twist.Back(x)), replace=lambda x: x)


class Back(Layer):
    key = "acme_twist.Back@1"

    def infer(self, attrs: Any, inputs: Any) -> Any:
        if inputs[0].rank < 1:
            raise ShapeError("a row needs an axis")
        return [inputs[0].plain()]

    def reference(self, attrs: Any, x: Any) -> Any:  # type: ignore[override]
        time.sleep(0.02)  # the tactic is chosen on every machine
        return (x[..., ::-1] * x.dtype.type(rows.factor()),)


class Plus(Back):
    key = "acme_twist.Plus@1"

    def reference(self, attrs: Any, x: Any) -> Any:  # type: ignore[override]
        import acme_twist.rows

        return (x + x.dtype.type(acme_twist.rows.factor()),)


class BackRows(Tactic):
    key = "acme_twist.back@1"
    implements = (Back.key,)
    source = "acme_twist"

    def variants(self, node: Any, device: Any) -> Any:
        return [Variant()]

    def compile(self, node: Any, variant: Any, ctx: Any) -> KernelArtifact:
        return KernelArtifact(RowsLauncher.key)


class Plugin:
    @hookimpl
    def tactix_layers(self) -> list[Layer]:
        return [Back(), Plus()]

    @hookimpl(specname="tactix_launchers")
    def launchers(self) -> list[Launcher]:
        return [RowsLauncher()]

    @hookimpl
    def tactix_tactics(self) -> list[Tactic]:
        return [BackRows()]


plugin = Plugin()
