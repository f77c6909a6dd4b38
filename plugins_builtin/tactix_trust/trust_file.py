"""The file of the trust store: keys, and digests of trusted plans. Only its user may read it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tactix.base.errors import ConfigError, InvalidArgument
from tactix_trust.key import TrustKey

VERSION = 1
DIGITS = frozenset("0123456789abcdef")


@dataclass
class TrustFile:
    """``local``: id of the key that signs what is built here; empty before the first build.
    ``digests``: with notes.
    """

    local: str = ""
    keys: dict[str, TrustKey] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)

    def add(self, key: TrustKey) -> None:
        """Keep a key; one that is there already takes the new name, and keeps its secret."""
        old = self.keys.get(key.id)
        self.keys[key.id] = TrustKey(
            key.algorithm, key.secret or (old.secret if old else b""), key.public, key.name
        )


def digest_of(text: str) -> str:
    """A sha256 as 64 small hexadecimal digits. Raises InvalidArgument."""
    digits = text.strip().removeprefix("sha256:").lower()
    if len(digits) != 64 or not DIGITS.issuperset(digits):
        raise InvalidArgument(
            f"{text[:80]!r} is no digest", do="Give the 64 digits that `tactix verify PLAN` shows"
        )
    return digits


def place() -> Path:
    """The file: in TACTIX_HOME, or the user's data folder (``platformdirs`` is asked where that is
    not XDG's).
    """
    home = os.environ.get("TACTIX_HOME")
    if home:
        return Path(home) / "trust.json"
    if sys.platform in ("linux", "freebsd"):
        base = os.environ.get("XDG_DATA_HOME", "").strip() or os.path.expanduser("~/.local/share")
        return Path(base) / "tactix" / "trust.json"
    from platformdirs import user_data_dir

    return Path(user_data_dir("tactix", appauthor=False)) / "trust.json"


def read() -> TrustFile:
    """What is trusted now; nothing where there is no file. Raises ConfigError."""
    path = place()
    try:
        with open(path, encoding="utf-8") as f:
            _check_owner(path, os.fstat(f.fileno()))
            return _decode(json.load(f))
    except (FileNotFoundError, NotADirectoryError):
        return TrustFile()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as e:
        if isinstance(e, ConfigError):
            raise
        do = "Mend it, or delete it and trust again what it held"
        raise ConfigError("cannot read the trust store", who=str(path), why=str(e), do=do) from None


def _check_owner(path: Path, found: os.stat_result) -> None:
    """Whoever writes this file decides what runs here."""
    if os.name == "posix" and (found.st_mode & 0o077 or found.st_uid != os.geteuid()):
        why = "other users can read or change it, or it is one's own no more"
        raise ConfigError(
            "the trust store is not private",
            who=str(path),
            why=why,
            do=f"chown it; chmod 600 {path}",
        )


def _decode(j: Mapping[str, Any]) -> TrustFile:
    if j["version"] != VERSION:
        raise ValueError(f"version {j['version']}, this tactix reads {VERSION}")
    keys = [
        TrustKey(k["algorithm"], bytes.fromhex(k["secret"]), bytes.fromhex(k["public"]), k["name"])
        for k in j["keys"]
    ]
    return TrustFile(
        str(j["local"]),
        {k.id: k for k in keys},
        {digest_of(d): str(note) for d, note in j["digests"].items()},
    )
