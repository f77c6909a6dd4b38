"""What training steps are made of: optimizers as compositions, and operators in their training
form.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tactix.base.dtypes import DType
from tactix.contracts.graph import Value
from tactix_onnx.convert import Context, Table

CONVERTERS = Table()

PREVIEW = "ai.onnx.preview.training"


class Arithmetic:
    """Pointwise layers by short names; numbers take the other operand's dtype."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx

    def _two(self, layer: str, a: Value | float, b: Value | float) -> Value:
        like = a if isinstance(a, Value) else b
        assert isinstance(like, Value)
        both = [v if isinstance(v, Value) else self.ctx.scalar(v, like) for v in (a, b)]
        return self.ctx.layer(f"tactix.{layer}", both)

    def add(self, a: Value | float, b: Value | float) -> Value:
        return self._two("Add", a, b)

    def sub(self, a: Value | float, b: Value | float) -> Value:
        return self._two("Sub", a, b)

    def mul(self, a: Value | float, b: Value | float) -> Value:
        return self._two("Mul", a, b)

    def div(self, a: Value | float, b: Value | float) -> Value:
        return self._two("Div", a, b)

    def power(self, a: Value | float, b: Value | float) -> Value:
        return self._two("Pow", a, b)

    def sqrt(self, a: Value) -> Value:
        return self.ctx.layer("tactix.Sqrt", [a])

    def where_positive(
        self, count: Value, a: Value | float, b: Value | float, like: Value
    ) -> Value:
        """``a`` where the count is above 0, else ``b``."""
        both = [v if isinstance(v, Value) else self.ctx.scalar(v, like) for v in (a, b)]
        above = self.ctx.layer("tactix.Greater", [count, self.ctx.scalar(0, count)])
        return self.ctx.layer("tactix.Where", [above, *both])

    def mixed(self, keep: float, old: Value, gain: Value | float, new: Value) -> Value:
        """``keep old + gain new``."""
        return self.add(self.mul(old, keep), self.mul(new, gain))


def _updated(ctx: Context, states: int, update: Callable[..., tuple[Value, ...]]) -> list[Value]:
    """Inputs are rate, count, then tensors, gradients and each state's; outputs tensors, then each
    state's.
    """
    count = (len(ctx.inputs) - 2) // (2 + states)
    found = [
        update(*(ctx.tensor(2 + i + k * count) for k in range(2 + states))) for i in range(count)
    ]
    return [results[k] for k in range(1 + states) for results in found]


def _regular(ctx: Context, m: Arithmetic, x: Value, g: Value) -> Value:
    """The gradient with that of a squared norm."""
    return m.add(m.mul(x, ctx.attr("norm_coefficient", 0.0)), g)


@CONVERTERS("Adagrad", domain=PREVIEW)
def adagrad(ctx: Context, node: Any) -> list[Value]:
    m, rate = Arithmetic(ctx), ctx.tensor()
    slower = m.add(
        m.mul(ctx.cast(ctx.tensor(1), rate.spec.dtype), ctx.attr("decay_factor", 0.0)), 1.0
    )
    rate, epsilon = m.div(rate, slower), ctx.attr("epsilon")

    def update(x: Value, g: Value, h: Value) -> tuple[Value, ...]:
        g = _regular(ctx, m, x, g)
        h = m.add(h, m.mul(g, g))
        return m.sub(x, m.div(m.mul(rate, g), m.add(m.sqrt(h), epsilon))), h

    return _updated(ctx, 1, update)


@CONVERTERS("Adam", domain=PREVIEW)
def adam(ctx: Context, node: Any) -> list[Value]:
    m, rate = Arithmetic(ctx), ctx.tensor()
    alpha, beta = ctx.attr("alpha", 0.9), ctx.attr("beta", 0.999)
    epsilon, after = ctx.attr("epsilon"), ctx.attr("norm_coefficient_post", 0.0)
    count = ctx.cast(ctx.tensor(1), rate.spec.dtype)
    grown = [m.sub(1.0, m.power(ctx.scalar(v, rate), count)) for v in (beta, alpha)]
    corrected = m.div(m.mul(rate, m.sqrt(grown[0])), grown[1])
    rate = m.where_positive(count, corrected, rate, rate)

    def update(x: Value, g: Value, v: Value, h: Value) -> tuple[Value, ...]:
        g = _regular(ctx, m, x, g)
        v, h = m.mixed(alpha, v, 1 - alpha, g), m.mixed(beta, h, 1 - beta, m.mul(g, g))
        x = m.sub(x, m.div(m.mul(rate, v), m.add(m.sqrt(h), epsilon)))
        return m.mul(x, 1 - after), v, h

    return _updated(ctx, 2, update)


@CONVERTERS("Momentum", domain=PREVIEW)
def momentum(ctx: Context, node: Any) -> list[Value]:
    m, rate = Arithmetic(ctx), ctx.tensor()
    alpha, mode = ctx.attr("alpha"), ctx.attr("mode")
    gain = m.where_positive(ctx.tensor(1), ctx.attr("beta"), 1.0, rate)

    def update(x: Value, g: Value, v: Value) -> tuple[Value, ...]:
        g = _regular(ctx, m, x, g)
        v = m.mixed(alpha, v, gain, g)
        step = m.mixed(alpha, v, 1.0, g) if mode == "nesterov" else v
        return m.sub(x, m.mul(rate, step)), v

    return _updated(ctx, 1, update)


@CONVERTERS("Dropout", since=12)
def dropout(ctx: Context, node: Any) -> Any:
    """The mask keeps all unless ``training_mode`` is set."""
    training = ctx.known(2)
    x, wanted = ctx.tensor(), len(node.output) > 1 and bool(node.output[1])
    if ctx.input(2) is None or training == (0,):
        ctx.ignore("seed")
        return (
            [x, ctx.layer("tactix.Fill", [], shape=x.spec.shape, value=1, dtype=DType.BOOL)]
            if wanted
            else [x]
        )
    y = ctx.layers(
        "tactix.TrainingDropout", [x, ctx.input(1), ctx.tensor(2)], seed=ctx.attr("seed", 0)
    )
    return y[: 1 + wanted]


@CONVERTERS("BatchNormalization", since=14)
def batch_normalization(ctx: Context, node: Any) -> Any:
    """In training, by the mean and variance of the batch, which move the running ones."""
    ctx.ignore("momentum")
    inputs, epsilon = [ctx.tensor(i) for i in range(5)], ctx.attr("epsilon", 1e-5)
    if not ctx.attr("training_mode", 0):
        return [ctx.layer("tactix.BatchNormalization", inputs, epsilon=epsilon)]
    m, x = Arithmetic(ctx), inputs[0]
    axes = tuple(i for i in range(x.spec.rank) if i != 1)
    mean = ctx.layer("tactix.ReduceMean", [x], axes=axes, keepdims=True)
    centred = m.sub(x, mean)
    variance = ctx.layer("tactix.ReduceMean", [m.mul(centred, centred)], axes=axes, keepdims=False)
    mean = ctx.reshape(mean, inputs[3].spec.shape)
    y = ctx.layer("tactix.BatchNormalization", [*inputs[:3], mean, variance], epsilon=epsilon)
    keep = ctx.attr("momentum", 0.9)
    moved = [
        m.mixed(keep, old, 1 - keep, new) for old, new in ((inputs[3], mean), (inputs[4], variance))
    ]
    return [y, *moved]
