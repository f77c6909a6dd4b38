"""Suppression of boxes written as loops: candidates in order, each of which drops later ones."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

F32 = np.float32


def overlap(a: Any, b: Any, unit: float = 0.0) -> Any:
    """Intersection over union of two boxes by corners, in float32."""
    sides, areas = [], [F32(1), F32(1)]
    for axis in (0, 1):
        ends = [sorted((F32(box[axis]), F32(box[axis + 2]))) for box in (a, b)]
        areas = [area * (high - low + F32(unit)) for area, (low, high) in zip(areas, ends)]
        low, high = max(e[0] for e in ends), min(e[1] for e in ends)
        if low > high:
            return F32(0)
        sides.append(high - low + F32(unit))
    shared = sides[0] * sides[1]
    together = areas[0] + areas[1] - shared
    return shared / together if shared > 0 and together > 0 else F32(0)


def candidates(scores: Any, get: dict[str, Any]) -> list[tuple[int, int]]:
    """Box and class of what counts, the best first."""
    first, passing = get.get("classes_first", False), []
    for i in range(scores.shape[0]):
        for c in range(scores.shape[1]):
            s, limit = F32(scores[i, c]), get["score_threshold"]
            enough = s >= limit if get.get("inclusive") else s > limit
            if enough and c != get["background"]:
                passing.append((-s, (c, i) if first else (i, c), i, c))
    listed = [(i, c) for _, _, i, c in sorted(passing)]
    if most := get.get("class_candidates"):
        listed = [p for n, p in enumerate(listed) if sum(q[1] == p[1] for q in listed[:n]) < most]
    return listed[: get.get("candidates") or len(listed)]


def drops(boxes: Any, a: tuple[int, int], b: tuple[int, int], get: dict[str, Any]) -> bool:
    """Whether a candidate that stays drops a later one."""
    if a[1] != b[1] and not get.get("class_agnostic"):
        return False
    last = boxes.shape[1] - 1
    both = boxes[a[0], min(a[1], last)], boxes[b[0], min(b[1], last)]
    o, limit = overlap(*both, get.get("unit", 0.0)), F32(get["overlap_threshold"])
    return bool(o >= limit if get.get("inclusive") else o > limit)


def detections(boxes: Any, scores: Any, **options: Any) -> list[tuple[int, int]]:
    """Box and class of each row of one sample: boxes (n, 1 or classes, 4), scores (n, classes);
    options as the attributes of CombinedSuppression.
    """
    get = {"rows": 1, "score_threshold": 0.0, "overlap_threshold": 0.5, "background": -1, **options}
    listed = candidates(scores, get)
    rows: list[tuple[int, int]] = []
    seen: Counter[int] = Counter()
    dropped: set[int] = set()
    for k, (i, c) in enumerate(listed):
        if k in dropped:
            continue
        if len(rows) == get["rows"]:
            break
        seen[c] += 1
        if not get.get("class_rows") or seen[c] <= get["class_rows"]:
            rows.append((i, c))
        later = range(k + 1, len(listed))
        dropped |= {n for n in later if drops(boxes, (i, c), listed[n], get)}
    return rows


def tables(boxes: Any, scores: Any, **options: Any) -> list[Any]:
    """Counts, boxes, scores, classes and places of a batch, as CombinedSuppression gives them."""
    batch, rows = len(boxes), options.get("rows", 1)
    count, found = np.zeros(batch, np.int32), np.zeros((batch, rows, 4), boxes.dtype)
    best = np.zeros((batch, rows), scores.dtype)
    classes, places = (np.full((batch, rows), -1, np.int32) for _ in range(2))
    for b in range(batch):
        for r, (i, c) in enumerate(detections(boxes[b], scores[b], **options)):
            count[b] += 1
            found[b, r] = boxes[b, i, min(c, boxes.shape[2] - 1)]
            best[b, r], classes[b, r], places[b, r] = scores[b, i, c], c, i
    return [count, found, best, classes, places]
