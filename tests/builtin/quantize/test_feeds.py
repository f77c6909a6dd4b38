"""Batches from folders, files and iterables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tactix.base.errors import InvalidArgument
from tactix.builder import Builder
from tactix.contracts.graph import Value
from tactix_quantize import feeds


def inputs(*shapes: tuple[str, str, list[int | str]]) -> list[Value]:
    net = Builder().create_network()
    return [net.add_input(name, dtype, shape) for name, dtype, shape in shapes]


GRAPH = [("x", "f32", ["n", 3]), ("edges", "i64", [2, "e"])]
ONE = ("x", "f32", ["n", 3])
TWO = (ONE, ("mask", "i64", ["n", 3]))


def test_a_folder_of_arrays_in_order(tmp_path: Path) -> None:
    for i in range(3):
        np.save(tmp_path / f"{i}.npy", np.full((2, 3), i, np.float64))
    (tmp_path / "notes.txt").write_text("")
    found = list(feeds.batches(tmp_path, inputs(ONE)))
    assert [b["x"].dtype for b in found] == [np.float32] * 3
    assert [b["x"][0, 0] for b in found] == [0, 1, 2]
    assert feeds.count(tmp_path) == 3


def test_a_file_is_cut_into_batches(tmp_path: Path) -> None:
    x, mask = np.arange(60, dtype=np.float32).reshape(20, 3), np.ones((20, 3), np.int64)
    np.savez(tmp_path / "all.npz", x=x, mask=mask)
    fixed = [(name, dtype, [5, 3]) for name, dtype, _ in TWO]
    for shapes, sizes in ((TWO, [7, 7, 6]), (fixed, [5] * 4)):
        found = list(feeds.batches(str(tmp_path / "all.npz"), inputs(*shapes)))
        assert [len(b["x"]) for b in found] == [len(b["mask"]) for b in found] == sizes
        np.testing.assert_array_equal(np.concatenate([b["x"] for b in found]), x)


def test_iterables_of_feeds_and_of_arrays() -> None:
    x = np.ones((2, 3), np.float32)
    loader = ({"x": x * i} for i in range(2))  # as Polygraphy's data loaders give them
    assert [b["x"][0, 0] for b in feeds.batches(loader, inputs(ONE))] == [0, 1]
    assert [b["x"][0, 0] for b in feeds.batches([x, x * 2], inputs(ONE))] == [1, 2]


def test_arrays_with_all_samples_are_cut_as_files_are() -> None:
    x, mask = np.arange(60, dtype=np.float32).reshape(20, 3), np.ones((20, 3), np.int64)
    for data, shapes in ((x, [ONE]), ({"x": x, "mask": mask}, TWO)):
        found = list(feeds.batches(data, inputs(*shapes)))
        assert [len(b["x"]) for b in found] == [7, 7, 6]
        assert feeds.count(data) == 0
    found = list(feeds.batches(x.reshape(5, 4, 3), inputs(ONE)))  # an axis more: batches
    assert [len(b["x"]) for b in found] == [4] * 5


class ByIndex:
    """As Polygraphy's DataLoader."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, i: int) -> dict[str, np.ndarray]:
        if i >= len(self):
            raise IndexError
        return {"x": np.full((2, 3), i, np.float32)}


def test_batches_by_index() -> None:
    assert [b["x"][0, 0] for b in feeds.batches(ByIndex(), inputs(ONE))] == [0, 1]
    assert feeds.count(ByIndex()) == 2


def graph(nodes: int = 50, edges: int = 200) -> dict[str, np.ndarray]:
    return {"x": np.ones((nodes, 3), np.float32), "edges": np.ones((2, edges), np.int64)}


@pytest.mark.parametrize("across", [False, True])
def test_first_axes_that_are_no_batch_are_not_cut(across: bool, tmp_path: Path) -> None:
    """As those of a graph: of nodes, and of the two ends of edges (or of edges)."""
    np.savez(tmp_path / "0.npz", **graph())
    np.savez(tmp_path / "1.npz", **graph(7, 9))
    shapes: list = [GRAPH[0], ("edges", "i64", ["m", "e"])] if across else GRAPH
    sizes = [(50, 200), (7, 9)]
    for data, wanted in (
        (tmp_path, sizes),
        ([graph(), graph(7, 9)], sizes),
        (tmp_path / "0.npz", sizes[:1]),
        (graph(), sizes[:1]),
    ):
        found = list(feeds.batches(data, inputs(*shapes)))
        assert [(b["x"].shape[0], b["edges"].shape[1]) for b in found] == wanted
        assert [b["edges"].shape[0] for b in found] == [2] * len(wanted)


def test_what_is_a_batch_is_cut_only_where_the_network_is_smaller(tmp_path: Path) -> None:
    x = np.arange(60, dtype=np.float32).reshape(20, 3)
    np.savez(tmp_path / "all.npz", x=x)
    for data in (tmp_path, [x], [{"x": x}]):
        assert [len(b["x"]) for b in feeds.batches(data, inputs(ONE))] == [20]
        fixed = [len(b["x"]) for b in feeds.batches(data, inputs(("x", "f32", [5, 3])))]
        assert fixed == [5] * 4


def test_samples_of_an_open_size_beside_a_fixed_one() -> None:
    data = {"x": np.ones((4, 3)), "mask": np.ones((8, 3), np.int64)}
    found = feeds.batches(data, inputs(("x", "f32", [2, 3]), TWO[1]))
    assert [(len(b["x"]), len(b["mask"])) for b in found] == [(2, 4)] * 2


@pytest.mark.parametrize(
    ("data", "shapes", "said"),
    [
        ([], [ONE], "there is no calibration data"),
        (7, [ONE], "calibration data is a int"),
        ({"y": np.ones((2, 3))}, [ONE], "the calibration data: no array for input 'x'"),
        ("nowhere.npz", [ONE], "nowhere.npz: there is no such file"),
        ([{"x": np.ones((2, 3)), "z": np.ones(2)}], [ONE], "'z', which is no input"),
        ([{"x": np.ones((2, 3))}], TWO, "no array for input 'mask'"),
        ([np.ones((2, 3))], TWO, "one array for 2 inputs"),
        ([np.ones((2, 4))], [ONE], r"the array is \[2, 4\]"),
        ([np.ones((0, 3))], [ONE], r"array for input 'x' is empty: its shape is \[0, 3\]"),
        ([np.ones(3)], [ONE], "the array is float64"),
        ([np.ones((2, 3), np.int64)], [ONE], "the array is int64"),
        ([np.ones((3, 3))], [("x", "f32", [2, 3])], "no whole number of batches of 2"),
        ([np.ones((3, 3))], [("x", "f32", [0, 3])], "no whole number of batches of 0"),
        (
            [{"x": np.ones((2, 3)), "mask": np.ones((40, 3), np.int64)}],
            TWO,
            r"different sizes of n: it is 2 in 'x' and 40 in 'mask'",
        ),
        (
            {"x": np.ones((4, 3)), "mask": np.ones((2, 3), np.int64)},
            [("x", "f32", [2, 3]), ("mask", "i64", [2, 3])],
            "different numbers of batches",
        ),
        (
            [{"x": np.ones((50, 3)), "edges": np.ones((4, 9), np.int64)}],
            GRAPH,
            "numbers of batches",
        ),
    ],
)
def test_what_is_wrong_is_told(data: object, shapes: list, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        list(feeds.batches(data, inputs(*shapes)))


def test_a_folder_without_arrays_and_a_damaged_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"no \.npy or \.npz file"):
        list(feeds.batches(tmp_path, inputs(ONE)))
    (tmp_path / "x.npy").write_bytes(b"no array")
    with pytest.raises(InvalidArgument, match=r"x\.npy: cannot read arrays: it is no \.npy"):
        list(feeds.batches(tmp_path, inputs(ONE)))
