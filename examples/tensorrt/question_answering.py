"""Question answering in the form of BERT: texts of any length, a profile for short ones and one for long ones.

Each profile has a context of its own; a text goes to the narrowest one that it fits.
"""

from __future__ import annotations

import zlib

import numpy as np
import tensorrt as trt
from common import arguments, build, check
from cuda.bindings import runtime as cudart

WORDS = 500
SEPARATOR = 1
PROFILES = ((1, 12, 16), (17, 48, 64))
"""Tokens: lowest, the number to tune for, highest."""

CONTEXT = (
    "the tower was built in two years by a company of three hundred workers and it is the tallest one "
    "of the city since the old bridge was taken down"
)
QUESTIONS = (
    ("who built it", "three hundred workers built it"),
    ("when was the tower built", CONTEXT),
)


def tokens(text: str) -> list[int]:
    """A number for each word; models that were trained have a vocabulary."""
    return [2 + zlib.crc32(word.encode()) % (WORDS - 2) for word in text.split()]


class Reader:
    """An engine with a context and buffers for each profile."""

    def __init__(self, engine: trt.ICudaEngine) -> None:
        self.engine = engine
        self.stream = check(cudart.cudaStreamCreate())
        self.contexts = []
        names = [engine.get_tensor_name(i) for i in range(engine.num_io_tensors)]
        modes = {name: engine.get_tensor_mode(name) for name in names}
        self.inputs = [n for n in names if modes[n] == trt.TensorIOMode.INPUT]
        self.outputs = [n for n in names if modes[n] == trt.TensorIOMode.OUTPUT]
        for index in range(engine.num_optimization_profiles):
            context = engine.create_execution_context()
            if not context.set_optimization_profile_async(index, int(self.stream)):
                raise RuntimeError(f"no profile {index}")
            self.contexts.append(context)

    def highest(self, index: int) -> int:
        """Tokens that a profile takes."""
        return self.engine.get_tensor_profile_shape("input_ids", index)[2][1]

    def answer(self, question: str, text: str) -> tuple[dict[str, np.ndarray], str]:
        """What the engine was given and gave, and the words that it points to."""
        asked, told = tokens(question), tokens(text)
        ids = np.array([[*asked, SEPARATOR, *told]], np.int32)
        arrays = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
        arrays |= self.run(arrays)
        begin = len(asked) + 1
        start, end = best_span(arrays["start_logits"][0, begin:], arrays["end_logits"][0, begin:])
        return arrays, " ".join(text.split()[start : end + 1])

    def run(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Outputs by name."""
        shape = inputs["input_ids"].shape
        index = next(i for i in range(len(self.contexts)) if shape[1] <= self.highest(i))
        context, addresses = self.contexts[index], []
        kinds = cudart.cudaMemcpyKind
        for name in self.inputs:
            context.set_input_shape(name, shape)
            address = check(cudart.cudaMalloc(inputs[name].nbytes))
            source = inputs[name].ctypes.data
            check(
                cudart.cudaMemcpyAsync(
                    address, source, inputs[name].nbytes, kinds.cudaMemcpyHostToDevice, self.stream
                )
            )
            context.set_tensor_address(name, address)
            addresses.append(address)
        if missing := context.infer_shapes():
            raise RuntimeError(f"no shape of {missing}")
        outputs = {}
        for name in self.outputs:
            outputs[name] = np.empty(tuple(context.get_tensor_shape(name)), np.float32)
            addresses.append(check(cudart.cudaMalloc(outputs[name].nbytes)))
            context.set_tensor_address(name, addresses[-1])
        if not context.execute_async_v3(stream_handle=int(self.stream)):
            raise RuntimeError("the engine failed")
        for name, array in outputs.items():
            source = context.get_tensor_address(name)
            check(
                cudart.cudaMemcpyAsync(
                    array.ctypes.data,
                    source,
                    array.nbytes,
                    kinds.cudaMemcpyDeviceToHost,
                    self.stream,
                )
            )
        check(cudart.cudaStreamSynchronize(self.stream))
        for address in addresses:
            check(cudart.cudaFree(address))
        return outputs


def best_span(start: np.ndarray, end: np.ndarray, longest: int = 5) -> tuple[int, int]:
    """The pair of places with the highest sum, the end not before the start."""
    sums = start[:, None] + end[None, :]
    allowed = np.triu(np.ones_like(sums)) - np.triu(np.ones_like(sums), longest)
    at = int(np.where(allowed > 0, sums, -np.inf).argmax())
    return at // len(end), at % len(end)


def main() -> None:
    args = arguments(__doc__)
    names = ("input_ids", "attention_mask")
    profiles = [{name: tuple((1, n) for n in lengths) for name in names} for lengths in PROFILES]
    reader = Reader(build(args.model, args.level, profiles))
    saved: dict[str, np.ndarray] = {}
    for i, (question, text) in enumerate(QUESTIONS):
        arrays, answer = reader.answer(question, text)
        print(f"{question}? {answer}")
        saved |= {f"{i}.{name}": array for name, array in arrays.items()}
    if args.output:
        np.savez(args.output, **saved)


if __name__ == "__main__":
    main()
