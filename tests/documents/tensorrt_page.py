"""The tables of members and of trtexec's flags in docs/tensorrt.md, made from what is there.

python tests/documents/tensorrt_page.py    # writes it anew
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from pathlib import Path

from tactix_tensorrt import api, levels
from tactix_tensorrt.api.config import FLAGS, NO_EFFECT
from tactix_tensorrt.api.layers import absent
from tactix_tensorrt.api.refusal import refused
from tactix_tensorrt.api.standing import IGNORED, NOT_CALLED, REFUSED
from tactix_tools.trtexec.flags import GROUPS, Flag, Standing

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tensorrt.md"
COMMAND = "python tests/documents/tensorrt_page.py"
BEGIN, END = f"<!-- members: written by {COMMAND} -->\n", "<!-- end of members -->"
FLAGS_BEGIN, FLAGS_END = f"<!-- flags: written by {COMMAND} -->\n", "<!-- end of flags -->"
OURS = {
    "INetworkDefinition": "add adopt changed_input constructs debug fail for_shapes formats held_shapes hidden "
    "input_value inputs is_parsed layers lowered native next_name open_inputs outdated "
    "outputs precise_layers is_strongly_typed refittable reshape_input retype roles "
    "tells_unfused value_of warn weights_names tensors",
    "IAttention": "align attributes changed computed",
    "IBuilderConfig": "ask_int8 check_typed error_recorder facts fail names native selection warn",
    "ICudaEngine": "allocator facts has kept layouts renewed",
    "IIfConditional": "KIND bound bounds check label layers lowered of tensors",
    "IIteratorLayer": "slice_at",
    "ILoop": "KIND bound bounds check conditions counts inside label layers lowered of tensors",
    "ITensor": "value",
    "OnnxParser": "error_recorder",
    "OnnxParserRefitter": "error_recorder",
    "IOptimizationProfile": "error_recorder fail native value_rows warn",
}
"""Attributes that the adapter has beside TensorRT's."""

INNER = {"fail", "warn", "native", "seal"}


def classes() -> Iterator[type]:
    """What programs construct or are given, but for enumerations and exceptions."""
    for name in api.__all__:
        found = getattr(api, name)
        if isinstance(found, type) and not issubclass(found, Enum):
            yield found


def members(cls: type) -> list[str]:
    """Public names of a class, its own or those of a base, that TensorRT has, too."""
    own = INNER | set(OURS.get(cls.__name__, "").split()) | set(vars(api.ILayer)) | {"owner"}
    layer = issubclass(cls, api.ILayer) and cls is not api.ILayer
    hidden = own if layer else INNER | set(OURS.get(cls.__name__, "").split())
    plain = set(dir(list)) | set(dir(bytes)) if issubclass(cls, list | bytes) else set()
    if cls is api.ILayer:
        from tactix_tensorrt.api.layer import OWN

        hidden = hidden | OWN
    names = [n for n in dir(cls) if n[0] != "_" and n not in plain | hidden]
    return [n for n in names if not (layer and n in ("kind", "TYPE", "OUTPUTS", "lower"))]


def standing(cls: type, name: str) -> str:
    """``yes``, ``refused`` or ``ignored``."""
    owners = [c.__name__ for c in cls.__mro__]
    if cls.__module__ == absent.__name__:
        return "refused"
    if getattr(getattr(cls, name), "__module__", "") == refused.__module__:
        return "refused"
    if any(name in REFUSED.get(owner, ()) for owner in owners):
        return "refused"
    kept = NOT_CALLED & set(owners) or any(name in IGNORED.get(owner, ()) for owner in owners)
    return "ignored" if kept else "yes"


def table() -> str:
    """A row a class."""
    rows = ["| class | yes | refused | ignored |", "|---|---|---|---|"]
    for cls in sorted(classes(), key=lambda c: c.__name__):
        by: dict[str, list[str]] = {"yes": [], "refused": [], "ignored": []}
        for name in members(cls):
            by[standing(cls, name)].append(name)
        if not any(by.values()):
            continue
        cells = [", ".join(f"`{n}`" for n in names) or "-" for names in by.values()]
        rows.append(f"| `{cls.__name__}` | {' | '.join(cells)} |")
    return "\n".join(rows)


def flags() -> str:
    """What becomes of each BuilderFlag."""
    names = list(api.BuilderFlag.__members__)
    served = ", ".join(f"`{n}`" for n in names if n in FLAGS)
    elsewhere = ", ".join(f"`{n}`" for n in names if n in NO_EFFECT)
    ignored = ", ".join(f"`{n}`" for n in names if n not in FLAGS and n not in NO_EFFECT)
    return (
        f"`BuilderFlag`: {served} are tactix's; {elsewhere} ask for what the adapter or tactix does "
        f"anyway; ignored, with a warning: {ignored}."
    )


def content() -> str:
    """All that is between the markers."""
    return f"{flags()}\n\nMembers at level {levels.DEFAULT}:\n\n{table()}\n"


def trtexec() -> str:
    """A row for each group of trtexec's flags."""
    rows = ["| group | yes | change nothing | refused |", "|---|---|---|---|"]
    for title, group in GROUPS.items():
        cells = [", ".join(_spelled(group, s)) or "-" for s in Standing]
        rows.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def _spelled(group: tuple[Flag, ...], standing: Standing) -> list[str]:
    return [f"`--{flag.name}`" for flag in group if flag.standing is standing]


def page(text: str) -> str:
    """The page with those parts made anew."""
    for begin, end, made in ((BEGIN, END, content()), (FLAGS_BEGIN, FLAGS_END, trtexec())):
        before, rest = text.split(begin)
        text = f"{before}{begin}{made}{end}{rest.split(end)[1]}"
    return text


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
