#!/usr/bin/env python3
"""Decoding one token at a time with a cache that grows: tactix beside ONNX Runtime and llama.cpp.

    python tests/benchmarks/decoding.py llama-850m --precision bf16 --threads 1,2 --llama-bench FILE
    python tests/benchmarks/decoding.py gpt2 --prompt 64 --tokens 384
    python tests/benchmarks/decoding.py llama-850m --weights int4 --genai FOLDER

The decoders are those of examples/generate, with random weights. In each round every engine reads
the prompt at once, and then writes the tokens one by one; both are timed apart, and engines take
turns. A rate is the median over rounds, a ratio the median over the ratios of rounds (above 1:
tactix is faster).

ONNX Runtime computes in float32, and is left out with ``--without-onnxruntime``. llama.cpp takes
part if ``--llama-bench`` names its program: it reads a file of the same sizes in bfloat16, with
weights of its own, that the package ``gguf`` writes; so it is for Llamas alone. With ``--weights
int4`` it reads that file as ``--llama-quantize`` packs it to each of ``--llama-types``, and all
engines may round activations to 8 bits in blocks, as it always does. Files are kept in
``--folder``, and those that are there are used. ``roof`` is the rate
at which the weights of a token could be read at the bandwidth that roofline.c measures between the
rounds; it is that of plain pages, while copied weights (``--copy-weights``) lie in huge ones.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from roofline import Machine
from rounds import in_turn

import tactix

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "generate"
sys.path.insert(0, str(EXAMPLE))
from model import DECODERS, Decoder, write  # noqa: E402


@dataclass(frozen=True)
class Rates:
    """Tokens per second."""

    reading: float
    writing: float


Engine = Callable[[], Rates]
"""Runs a round."""


@dataclass(frozen=True)
class Round:
    """What is decoded: tokens read at once, and then written one by one."""

    prompt: int
    tokens: int

    @property
    def ids(self) -> np.ndarray:
        """Of the prompt: (1, prompt) int64."""
        return np.random.default_rng(0).integers(0, 1000, (1, self.prompt))


def rates_of(step: Callable[[np.ndarray], np.ndarray], what: Round) -> Rates:
    """Of one who is called step by step; ``step`` takes ids and gives logits."""
    start = time.perf_counter()
    logits = step(what.ids)
    read = time.perf_counter()
    for _ in range(what.tokens):
        logits = step(np.array([[int(logits[0, -1].argmax())]]))
    return Rates(what.prompt / (read - start), what.tokens / (time.perf_counter() - read))


def tactix_engine(path: Path, threads: int, options: argparse.Namespace, what: Round) -> Engine:
    """Of the plan as a file, as it is deployed, with its cache in the context."""
    plan = path.with_suffix(f".{threads}.plan")
    flags = {tactix.BuilderFlag.RESERVE_STATES}
    tactix.build(
        path, threads=threads, level=options.level, precision=options.precision, flags=flags
    ).save(plan)
    engine = tactix.load(plan, max_threads=threads, copy_weights=options.copy_weights)
    context = engine.create_execution_context()
    context.reserve(what.prompt + what.tokens)

    def run() -> Rates:
        context.state_length = 0
        return rates_of(lambda ids: context.run({"input_ids": ids})["logits"], what)

    return run


def onnxruntime_engine(path: Path, threads: int, what: Round) -> Engine:
    """With the cache in and out, as its own tools for decoding do it without IO binding."""
    import onnxruntime as ort

    settings = ort.SessionOptions()
    settings.intra_op_num_threads = threads
    session = ort.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])
    names = [y.name for y in session.get_outputs()]
    pasts = [i for i in session.get_inputs() if i.name.startswith("past")]
    empty = {
        i.name: np.zeros([d if isinstance(d, int) else 0 for d in i.shape], np.float32)
        for i in pasts
    }

    def run() -> Rates:
        cache = dict(empty)

        def step(ids: np.ndarray) -> np.ndarray:
            found = dict(zip(names, session.run(names, {"input_ids": ids, **cache}), strict=True))
            cache.update({n: found[n.replace("past_key_values", "present")] for n in cache})
            return found["logits"]

        return rates_of(step, what)

    return run


def genai_engine(folder: Path, threads: int, what: Round) -> Engine:
    """By its generator, which keeps the cache."""
    import onnxruntime_genai as genai

    config = genai.Config(str(folder))
    options = {"session_options": {"intra_op_num_threads": threads}}
    config.overlay(json.dumps({"model": {"decoder": options}}))
    model = genai.Model(config)

    def run() -> Rates:
        params = genai.GeneratorParams(model)
        params.set_search_options(max_length=what.prompt + what.tokens + 2, do_sample=False)
        generator = genai.Generator(model, params)
        start = time.perf_counter()
        generator.append_tokens(what.ids.astype(np.int32))
        generator.generate_next_token()
        read = time.perf_counter()
        for _ in range(what.tokens):
            generator.generate_next_token()
        return Rates(what.prompt / (read - start), what.tokens / (time.perf_counter() - read))

    return run


def llama_engine(program: Path, model: Path, threads: int, what: Round, behind: bool) -> Engine:
    """By its own benchmark; ``behind``: tokens are written behind the prompt, or behind none."""
    command = [str(program), "-m", str(model), "-t", str(threads), "-r", "1", "-o", "json"]

    def rate(*sizes: str) -> float:
        found = subprocess.run([*command, *sizes], capture_output=True, text=True, check=True)
        return float(json.loads(found.stdout)[0]["avg_ts"])

    def run() -> Rates:
        reading = rate("-p", str(what.prompt), "-n", "0")
        depth = str(what.prompt) if behind else "0"
        return Rates(reading, rate("-p", "0", "-n", str(what.tokens), "-d", depth))

    return run


def write_gguf(decoder: Decoder, path: Path) -> Path:
    """A Llama of the same sizes in bfloat16, with random weights."""
    import gguf

    w = gguf.GGUFWriter(path, "llama")
    w.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    w.add_tokenizer_model("no_vocab")
    w.add_vocab_size(decoder.vocabulary)
    w.add_context_length(decoder.context)
    w.add_embedding_length(decoder.width)
    w.add_block_count(decoder.layers)
    w.add_feed_forward_length(decoder.hidden)
    w.add_head_count(decoder.heads)
    w.add_head_count_kv(decoder.kv_heads)
    w.add_layer_norm_rms_eps(1e-6)
    w.add_rope_dimension_count(decoder.size)
    random = np.random.default_rng(0)
    for name, shape in _tensors(decoder):
        if len(shape) == 1:
            w.add_tensor(name, np.ones(shape, np.float32))
            continue
        x = random.standard_normal(shape, np.float32) * np.float32(shape[1] ** -0.5)
        upper = (x.view(np.uint32) >> 16).astype(np.uint16)  # bfloat16 is the upper half
        w.add_tensor(name, upper.view(np.uint8), raw_dtype=gguf.GGMLQuantizationType.BF16)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return path


def _tensors(d: Decoder) -> Iterable[tuple[str, tuple[int, ...]]]:
    """Names and shapes as llama.cpp has them: (outputs, inputs)."""
    yield "token_embd.weight", (d.vocabulary, d.width)
    yield "output.weight", (d.vocabulary, d.width)
    yield "output_norm.weight", (d.width,)
    for layer in range(d.layers):
        at = f"blk.{layer}."
        yield f"{at}attn_norm.weight", (d.width,)
        yield f"{at}ffn_norm.weight", (d.width,)
        yield f"{at}attn_q.weight", (d.width, d.width)
        yield f"{at}attn_k.weight", (d.kv_heads * d.size, d.width)
        yield f"{at}attn_v.weight", (d.kv_heads * d.size, d.width)
        yield f"{at}attn_output.weight", (d.width, d.width)
        yield f"{at}ffn_gate.weight", (d.hidden, d.width)
        yield f"{at}ffn_up.weight", (d.hidden, d.width)
        yield f"{at}ffn_down.weight", (d.width, d.hidden)


@dataclass(frozen=True)
class Files:
    """What engines read. ``ggufs``: llama.cpp's by their types, none where it does not take part."""

    model: Path
    ggufs: dict[str, Path]


def files(folder: Path, options: argparse.Namespace, decoder: Decoder) -> Files:
    """Those of the folder, or new ones in it."""
    model, gguf = (folder / f"{options.decoder}.{kind}" for kind in ("onnx", "gguf"))
    if not model.exists():
        write(decoder, model)
    if options.llama_bench and not gguf.exists():
        write_gguf(decoder, gguf)
    ggufs = {"BF16": gguf} if options.llama_bench else {}
    if options.weights == "int4":
        model = in_four_bits(model)
        ggufs = {kind: packed(gguf, kind, options) for kind in options.llama_types if ggufs}
    return Files(model, ggufs)


def in_four_bits(model: Path) -> Path:
    """The file with weights of 4 bits, in blocks of 32."""
    small = model.with_suffix(".int4.onnx")
    if not small.exists():
        command = [sys.executable, "-m", "tactix", "quantize", str(model), "--weights", "int4"]
        subprocess.run([*command, "--block", "32", "-o", str(small)], check=True)
    return small


def packed(gguf: Path, kind: str, options: argparse.Namespace) -> Path:
    """llama.cpp's file with weights of that type of its own, such as Q4_0."""
    small = gguf.with_suffix(f".{kind.lower()}.gguf")
    if not small.exists():
        command = [str(options.llama_quantize), str(gguf), str(small), kind]
        subprocess.run(command, check=True, capture_output=True)
    return small


BITS = {"fp32": 32.0, "bf16": 16.0, "int4": 4.5}
"""Of a weight; one of 4 bits has a share of its block's scale of 16 bits."""


def read_bytes(decoder: Decoder, kind: str) -> int:
    """Of the weights that a token needs: all but the embeddings."""
    products = sum(n * k for name, (n, *rest) in _tensors(decoder) for k in rest) - (
        decoder.vocabulary * decoder.width
    )
    if decoder.kind == "gpt2":  # has no gate
        products -= decoder.layers * decoder.hidden * decoder.width
    return int(products * BITS[kind] / 8)


def engines(
    given: Files, threads: int, options: argparse.Namespace, what: Round
) -> dict[str, Engine]:
    """By title, tactix first."""
    small = options.weights == "int4"
    found = {"tactix": tactix_engine(given.model, threads, options, what)}
    if not options.without_onnxruntime:
        title = f"ONNX Runtime {'int4' if small else 'fp32'}"
        found[title] = onnxruntime_engine(given.model, threads, what)
    if options.genai:
        found["onnxruntime-genai int4"] = genai_engine(options.genai, threads, what)
    for kind, path in given.ggufs.items():
        program = options.llama_bench
        found[f"llama.cpp {kind}"] = llama_engine(program, path, threads, what, not small)
    return found


def rows(
    found: dict[str, Engine], decoder: Decoder, threads: int, options: argparse.Namespace
) -> list[str]:
    """Two lines of the table, of writing and of reading."""
    kind = options.precision if options.weights == "as they are" else options.weights
    size, machine = read_bytes(decoder, kind), Machine()
    for run in found.values():
        run()  # binds, and finds what to share between threads
    rounds: list[dict[str, Rates]] = []
    roofs: list[float] = []
    for turn in range(options.rounds):
        rounds.append({name: found[name]() for name in in_turn(list(found), turn)})
        roofs.append(machine.rate("read", threads, size) / size)
    machine.close()
    roof = f"{statistics.median(roofs):.1f}"
    writing = [{name: r.writing for name, r in x.items()} for x in rounds]
    reading = [{name: r.reading for name, r in x.items()} for x in rounds]
    return [
        f"| {threads} | writing | {' | '.join(cells(writing))} | {roof} |",
        f"| {threads} | reading | {' | '.join(cells(reading))} | |",
    ]


def cells(rounds: list[dict[str, float]]) -> list[str]:
    """Rates of engines, and ratios to those that are not the first."""
    found = []
    for name in rounds[0]:
        found.append(f"{statistics.median(r[name] for r in rounds):.1f}")
        if name != "tactix":
            found.append(f"{statistics.median(r['tactix'] / r[name] for r in rounds):.2f}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("decoder", nargs="?", choices=DECODERS, default="llama-850m")
    parser.add_argument("--threads", default="1", help="as in 1,2 (default: 1)")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32", help="of tactix")
    parser.add_argument("--prompt", type=int, default=128, help="tokens before (default: 128)")
    parser.add_argument("--tokens", type=int, default=32, help="in a round (default: 32)")
    parser.add_argument("--rounds", type=int, default=5, help="default: 5")
    parser.add_argument("--level", type=int, default=3, help="of tactix's build (default: 3)")
    parser.add_argument("--copy-weights", action="store_true", help="in tactix, to huge pages")
    parser.add_argument("--without-onnxruntime", action="store_true")
    parser.add_argument("--llama-bench", type=Path, help="llama.cpp's program of that name")
    parser.add_argument("--llama-quantize", type=Path, help="the same, with --weights int4")
    parser.add_argument(
        "--llama-types",
        default=["Q4_0"],
        type=lambda names: names.split(","),
        help="of llama.cpp's weights with --weights int4, as in Q4_0,Q4_K_M (default: Q4_0)",
    )
    parser.add_argument("--weights", choices=("as they are", "int4"), default="as they are")
    parser.add_argument("--genai", type=Path, help="folder of onnxruntime-genai's model of 4 bits")
    parser.add_argument("--folder", type=Path, help="of the models (default: a temporary one)")
    options = parser.parse_args()
    decoder, what = DECODERS[options.decoder], Round(options.prompt, options.tokens)
    if options.llama_bench and decoder.kind != "llama":
        parser.error(f"llama.cpp is asked for, and {options.decoder} is no Llama")
    if options.weights == "int4" and options.llama_bench and not options.llama_quantize:
        parser.error("--weights int4 with --llama-bench needs --llama-quantize")
    with tempfile.TemporaryDirectory() as temporary:
        table(options.folder or Path(temporary), options, decoder, what)


def table(folder: Path, options: argparse.Namespace, decoder: Decoder, what: Round) -> None:
    """Prints it, row by row."""
    given = files(folder, options, decoder)
    headed = False
    for threads in map(int, options.threads.split(",")):
        found = engines(given, threads, options, what)
        if not headed:
            heads = [h for n in found for h in ((n, "ratio") if n != "tactix" else (n,))]
            print(
                f"| threads | tokens | {' | '.join(heads)} | roof |\n|{'---|' * (len(heads) + 3)}"
            )
            headed = True
        print("\n".join(rows(found, decoder, threads, options)), flush=True)


if __name__ == "__main__":
    main()
