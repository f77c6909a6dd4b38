"""Pictures for notebooks, and engines that are looked at while they serve.

Heavy imports stay inside functions, so that finding plugins is quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tactix.plugins.pack import BasePack

if TYPE_CHECKING:
    from tactix.contracts.presenter import Presenter
    from tactix_inspect.shadowing.flavour import ShadowingFlavour

pack = BasePack("tactix")


@pack.presenter
def pictures() -> Presenter:
    from tactix_inspect.pictures import Pictures

    return Pictures()


@pack.flavour
def shadowing() -> ShadowingFlavour:
    from tactix_inspect.shadowing.flavour import ShadowingFlavour

    return ShadowingFlavour()
