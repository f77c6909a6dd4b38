from __future__ import annotations

import hashlib
import itertools
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tactix.base.errors import ConfigError, InvalidArgument, PluginError
from tactix.plugins.identity import (
    Key,
    Provider,
    content_digest,
    installed_files,
    normal,
    package_files,
)
from tactix.plugins.names import check_namespace


@pytest.mark.parametrize(
    "text", ["acme.Swish@1", "a.b@12", "tactix.cpu.elf@1", "my_pack2.conv-c16@3"]
)
def test_key_round_trip(text: str) -> None:
    key = Key.parse(text)
    assert str(key) == text
    assert Key(key.namespace, key.name, key.version) == key
    assert hash(Key.parse(text)) == hash(key)


@pytest.mark.parametrize(
    "text",
    ["", "acme", "acme.Swish", "acme.Swish@", "acme.Swish@0", "acme.Swish@01", "acme.Swish@-1", "Acme.Swish@1",
     "1a.B@1", "acme.@1", "acme.Swish@1 ", "acme.Swish@1\n", ".Swish@1", "acme..Swish@1", "acme.Sw ish@1", "acme.9@1"],
)  # fmt: skip
def test_what_is_no_key(text: str) -> None:
    with pytest.raises(InvalidArgument, match="no key"):
        Key.parse(text)


def test_a_key_cannot_be_made_wrong() -> None:
    with pytest.raises(InvalidArgument):
        Key("Acme", "Swish", 1)
    with pytest.raises(InvalidArgument):
        Key("acme", "Swish", 0)


def test_keys_sort_by_number_of_version() -> None:
    texts = ["acme.B@2", "acme.B@10", "acme.A@3", "zeta.A@1"]
    for order in itertools.permutations(texts):
        assert [str(k) for k in sorted(map(Key.parse, order))] == [
            "acme.A@3",
            "acme.B@2",
            "acme.B@10",
            "zeta.A@1",
        ]


@pytest.mark.parametrize("name", ["", "Acme", "9a", "a-b", "a.b", "é"])
def test_what_is_no_namespace(name: str) -> None:
    with pytest.raises(ConfigError, match="is no namespace"):
        check_namespace(name)


@pytest.mark.parametrize("name", ["tactix", "tensorrt", "trt", "onnx", "std"])
def test_reserved_namespaces(name: str) -> None:
    with pytest.raises(ConfigError, match="reserved"):
        check_namespace(name)
    if name == "tactix":
        assert check_namespace(name, own=True) == name
    else:
        with pytest.raises(ConfigError, match="reserved"):
            check_namespace(name, own=True)


def test_names_of_distributions_compare_as_on_an_index() -> None:
    assert normal("Acme_.-TRT") == "acme-trt"


def test_digest_is_of_paths_and_contents(tmp_path: Path) -> None:
    a, b = tmp_path / "a.py", tmp_path / "b.py"
    a.write_bytes(b"1")
    b.write_bytes(b"2")
    rows = [
        ("p/a.py", hashlib.sha256(b"1").hexdigest()),
        ("p/b.py", hashlib.sha256(b"2").hexdigest()),
    ]
    expected = hashlib.sha256(repr(rows).encode()).hexdigest()
    assert content_digest([("p/b.py", b), ("p/a.py", a)]) == expected
    b.write_bytes(b"3")
    assert content_digest([("p/b.py", b), ("p/a.py", a)]) != expected
    with pytest.raises(PluginError, match=r"cannot read p/c\.py.*Install the distribution again"):
        content_digest([("p/c.py", tmp_path / "c.py")])


def test_digest_is_read_once_and_late(tmp_path: Path) -> None:
    asked = []
    path = tmp_path / "a.py"
    path.write_text("x = 1")

    def files() -> list[tuple[str, Path]]:
        asked.append(1)
        return [("a.py", path)]

    p = Provider("acme-trt", "0.4", files)
    assert not asked
    assert p.digest == p.digest
    assert asked == [1]
    assert p == Provider("acme-trt", "0.4")
    assert Provider().digest == Provider("acme-trt", "0.4", list).digest == ""
    assert str(p) == "acme-trt 0.4"
    assert str(Provider()) == "given in process"


class Dist:
    """A distribution with a list of files."""

    def __init__(self, root: Path, names: list[str], recorded: bool = True) -> None:
        self.root, self.files, self.recorded = root, [Path(n) for n in names], recorded

    def locate_file(self, f: Path) -> Path:
        return self.root / f

    def read_text(self, name: str) -> str | None:
        return "its files" if name == "RECORD" and self.recorded else None


def test_only_code_counts(tmp_path: Path) -> None:
    names = [
        "acme/a.py",
        "acme/k.cu",
        "acme/__pycache__/a.cpython-311.pyc",
        "acme-1.dist-info/RECORD",
        "../../bin/acme",
    ]
    assert installed_files(Dist(tmp_path, names), "acme.plugin") == [
        ("acme/a.py", tmp_path / "acme/a.py"),
        ("acme/k.cu", tmp_path / "acme/k.cu"),
    ]


def test_an_editable_distribution_counts_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "acme_editable"
    (package / "sub").mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / "sub" / "k.cu").write_text("x")
    (package / "old.pyc").write_text("x")
    monkeypatch.syspath_prepend(str(tmp_path))
    dist = Dist(
        tmp_path,
        ["__editable__.acme.pth", "__editable___acme_finder.py", "acme-1.dist-info/RECORD"],
    )
    found = dict(installed_files(dist, "acme_editable.plugin:thing"))
    assert sorted(found) == ["acme_editable/__init__.py", "acme_editable/sub/k.cu"]
    assert "acme_editable" not in sys.modules


def test_files_of_a_single_module_and_of_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "acme_single.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert package_files("acme_single") == [("acme_single.py", tmp_path / "acme_single.py")]
    assert installed_files(Dist(tmp_path, []), "acme_single:plugin") == package_files("acme_single")
    assert package_files("acme_nowhere") == []
    none = SimpleNamespace(files=None, read_text=lambda name: None)
    assert installed_files(none, "acme_nowhere") == []


def test_a_source_tree_counts_its_package_as_an_editable_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "src" / "acme_tree"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path / "src"))
    listed = Dist(
        tmp_path, ["src/acme_tree/__init__.py", "README.md", "tests/test_it.py"], recorded=False
    )
    assert installed_files(listed, "acme_tree") == package_files("acme_tree")
