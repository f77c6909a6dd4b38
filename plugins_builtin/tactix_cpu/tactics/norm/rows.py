"""Kernels that work row by row: statistics of a contiguous row, then a map of its elements with an
epilogue.

Loops tagged ``ROW`` make up a row, those before it tell rows apart. Operands: input 0, the output,
then parameters of the anchor (``r0``..), then the epilogue's operands (``o0``..). Inside a row
``p`` points to its input, ``q0``.. to its outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tactix.base import dims
from tactix.base.dtypes import DType
from tactix_codegen.c import text as c_text
from tactix_codegen.c.epilogue import Epilogue
from tactix_codegen.c.space import Space
from tactix_codegen.c.text import Args, block, loop
from tactix_codegen.operations.rows import OUTER


@dataclass
class CpuRowKernel:
    """``space``: collapsed loops with strides of all operands; ``parameters``: given inputs that
    the anchor reads besides input 0; the epilogue's operands follow in order of their variables."""

    args: Args
    space: Space
    epilogue: Epilogue
    parameters: Sequence[int]

    def __post_init__(self) -> None:
        self.order = sorted(self.epilogue.operands)
        self.outer = [i for i, t in enumerate(self.space.tags) if t == OUTER]
        self.inner = [i for i, t in enumerate(self.space.tags) if t != OUTER]
        self.length = dims.prod(self.space.sizes[i] for i in self.inner)
        self.source = self.dtype_of(0)

    def dtype_of(self, index: int) -> DType:
        """dtype of a given input."""
        return self.args.node.given[index].spec.dtype

    @property
    def count(self) -> str:
        """Elements of a row."""
        return self.args.dim(self.length)

    def body(self, row: Sequence[str]) -> list[str]:
        """The statements ``row`` for every row, shared between threads."""
        if not self.outer:
            return [block("if (tid == 0)", *self._pointers([]), *row)]
        names = [f"i{i}" for i in self.outer]
        sizes = [self.args.dim(self.space.sizes[i]) for i in self.outer]
        total = self.args.dim(dims.prod(self.space.sizes[i] for i in self.outer))
        inside = loop(
            "o", "lo", "hi", c_text.decode("o", names, sizes), *self._pointers(self.outer), *row
        )
        return [c_text.split(total), inside]

    def _all(self) -> list[tuple[str, str, DType]]:
        """Name, base and dtype of every operand, in the order of the strides but with each output
        on its own.
        """
        node = self.args.node
        out = [("p", self.args.input(0), self.source)]
        out += [(f"q{j}", self.args.output(j), v.spec.dtype) for j, v in enumerate(node.outputs)]
        given = [*self.parameters, *(self.epilogue.operands[v].index for v in self.order)]
        names = [
            *(f"r{k}" for k in range(len(self.parameters))),
            *(f"o{k}" for k in range(len(self.order))),
        ]
        return out + [
            (n, self.args.input(i), self.dtype_of(i)) for n, i in zip(names, given, strict=True)
        ]

    def _stride_index(self, position: int) -> int:
        outputs = len(self.args.node.outputs)
        return 0 if position == 0 else 1 if position <= outputs else position - outputs + 1

    def _pointers(self, loops: Sequence[int], prefix: str = "", of: str = "") -> list[str]:
        out = []
        for k, (name, base, dtype) in enumerate(self._all()):
            strides = self.space.strides[self._stride_index(k)]
            offset = self.args.offset([strides[i] for i in loops], [f"i{i}" for i in loops])
            const = "" if name[0] == "q" else "const "
            out.append(
                f"{const}{c_text.ctype(dtype)}* {prefix}{name} = {of + name if of else base} "
                f"+ {offset};"
            )
        return out

    def load(self, index: str, count: str = "") -> str:
        """The vector of the row's input at ``index``."""
        return c_text.load(self.source, f"p + {index}", count)

    def sweep(
        self, names: Sequence[str], start: str, step: str, join: str, masked: str
    ) -> list[str]:
        """Reduce the row: ``step`` of vector ``v`` and accumulator ``s``; ``join`` of ``a`` and
        ``b``.

        ``names``: the accumulators, a power of two of them; the first has the result. ``masked``:
        the vector in place of ``v`` where lanes beyond the end hold zeros and ``n`` are left.
        """
        n, ways = self.count, len(names)

        def at(index: str, name: str, count: str = "") -> str:
            value = f"const vf v = {self.load(index, count)};"
            form = step.format(s=name, v=masked.format(v="v", n=count) if count else "v")
            return f"{{ {value} {name} = {form}; }}"

        main = [at(f"i + {w} * TX_LANES", name) for w, name in enumerate(names)]
        merged, half = [], ways // 2
        while half:
            merged += [
                f"{a} = {join.format(a=a, b=b)};"
                for a, b in zip(names[:half], names[half : 2 * half])
            ]
            half //= 2
        steps = [
            "int64_t i = 0;",
            block(f"for (; i + {ways} * TX_LANES <= {n}; i += {ways} * TX_LANES)", *main),
            block(f"for (; i + TX_LANES <= {n}; i += TX_LANES)", at("i", names[0])),
            block(f"if (i < {n})", at("i", names[0], f"{n} - i")),
        ]
        return [f"vf {', '.join(f'{x} = {start}' for x in names)};", block("", *steps), *merged]

    def finish(
        self, value: str, index: str, count: str, prefix: str = "", splats: bool = False
    ) -> list[str]:
        """Epilogue and stores of the vector ``value`` at ``index`` of this part of the row."""
        base = 2 + len(self.parameters)
        by_index = {self.epilogue.operands[v].index: k for k, v in enumerate(self.order)}
        code = self.epilogue.emit(
            [value],
            lambda o: self._operand(
                f"o{by_index[o.index]}",
                base + by_index[o.index],
                o.dtype,
                index,
                count,
                prefix,
                splats,
            ),
        )
        stores = [
            c_text.store(t, f"{prefix}q{j} + {index}", name, count)
            for j, (name, t) in enumerate(zip(code.results, code.dtypes, strict=True))
        ]
        return [*code.statements, *stores]

    def parameter(
        self, k: int, index: str, count: str, prefix: str = "", splats: bool = False
    ) -> str:
        """The vector of parameter ``k`` at ``index``."""
        return self._operand(
            f"r{k}", 2 + k, self.dtype_of(self.parameters[k]), index, count, prefix, splats
        )

    def _operand(
        self,
        name: str,
        strides: int,
        dtype: DType,
        index: str,
        count: str,
        prefix: str,
        splats: bool,
    ) -> str:
        if self.space.strides[strides][-1] == 0:
            return f"{prefix}all_{name}" if splats else c_text.splat(dtype, prefix + name)
        return c_text.load(dtype, f"{prefix}{name} + {index}", count)

    def map(
        self, value: Callable[[str, Callable[[int], str]], list[str]], source: str = "p"
    ) -> list[str]:
        """Write the row: ``value(x, parameter)`` gives statements that declare ``y`` from vector
        ``x`` and parameters.

        ``source`` is the pointer that ``x`` is read from.
        """
        *others, last = self.inner
        size = self.args.dim(self.space.sizes[last])
        dtype = self.source if source == "p" else DType.FP32

        def at(index: str, count: str) -> list[str]:
            x = f"const vf x = {c_text.load(dtype, f'm{source} + {index}', count)};"
            made = value("x", lambda k: self.parameter(k, index, count, "m", True))
            return [x, *made, *self.finish("y", index, count, "m", True)]

        inside = [
            *self._pointers(others, "m", " "),
            *self._hoisted(),
            "int64_t j = 0;",
            block(f"for (; j + TX_LANES <= {size}; j += TX_LANES)", *at("j", "")),
            block(f"if (j < {size})", *at("j", f"{size} - j")),
        ]
        text = block("", *inside)
        for i in reversed(others):
            text = loop(f"i{i}", "0", self.args.dim(self.space.sizes[i]), text)
        return [text]

    def _hoisted(self) -> list[str]:
        """Operands that the last loop does not move, as vectors."""
        out = []
        for k, (name, _, dtype) in enumerate(self._all()):
            if name[0] in "ro" and self.space.strides[self._stride_index(k)][-1] == 0:
                out.append(
                    f"const {c_text.vector_type(dtype)} mall_{name} = "
                    f"{c_text.splat(dtype, 'm' + name)};"
                )
        return out
