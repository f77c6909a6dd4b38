"""Pictures for notebooks; they are imported when one is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tactix.plugins.pack import BasePack

if TYPE_CHECKING:
    from tactix.contracts.presenter import Presenter

pack = BasePack("tactix")


@pack.presenter
def pictures() -> Presenter:
    from tactix_inspect.pictures import Pictures

    return Pictures()
