"""An engine that tells what it is made of."""

from __future__ import annotations

from typing import Any

from tactix.contracts.launcher import Step
from tactix.plan.memory import lower_bound
from tactix.plan.schema import TensorIO
from tactix.run.engine import Engine


class InspectedEngine(Engine):
    """An Engine with an inspector."""

    def inspect(self) -> dict[str, Any]:
        """io, steps and memory as JSON."""
        return {
            "name": self.name,
            "device": dict(self.plan.device),
            "inputs": [_describe(io) for io in self.inputs],
            "outputs": [_describe(io) for io in self.outputs],
            "profiles": [
                {"name": p.name, "dims": {k: list(v) for k, v in p.dims.items()}}
                for p in self.profiles
            ],
            "steps": [_step(s) for s in self.plan.steps],
            "memory": self._memory(),
        }

    def _memory(self) -> dict[str, Any]:
        """Bytes; the arena's at the shapes that the first profile is tuned for."""
        weights = self._program.weights.nbytes
        opt = {s: r[1] for p in self.profiles[:1] for s, r in p.dims.items()}
        if self.plan.produced or not self.plan.symbols <= opt.keys():
            return {"weights": weights}
        program, layout = self._at(opt, 0)
        live = [program.plan.buffers[i] for i in program.placed]
        least = lower_bound(program.sizes(layout.env), [(b.first, b.last) for b in live])
        ratio = layout.arena / least if least else 1.0
        return {"weights": weights, "arena": layout.arena, "lower_bound": least, "ratio": ratio}


def _describe(io: TensorIO) -> dict[str, Any]:
    return {
        "name": io.name,
        "dtype": io.dtype.value,
        "shape": [d if isinstance(d, int) else str(d) for d in io.shape],
    }


def notes(s: Step) -> dict[str, Any]:
    """What is noted of a step, but for what it computes."""
    return {k: v for k, v in s.info.items() if k != "reference"}


def _step(s: Step) -> dict[str, Any]:
    return {
        "name": s.name,
        "launcher": s.artifact.launcher,
        "inputs": [f"{o.spec} {o.format.name}" for o in s.inputs],
        "outputs": [f"{o.spec} {o.format.name}" for o in s.outputs],
        "host_code": s.artifact.host_code,
        **notes(s),
        **({"bodies": [[_step(x) for x in p.steps] for p in s.plans]} if s.plans else {}),
    }
