"""llama.cpp through the low-level API of llama-cpp-python, a case at a time: the peer's half of the comparison.

Every stream has KV cells of its own (`kv_unified` is off): with shared ones, each stream would also look at the others'.
Contexts are computed once and kept as files in `--states`: to fill 32 streams of 2,048 tokens takes this engine minutes.
"""

import argparse
import ctypes
import json
import sys
import time
from pathlib import Path

import llama_cpp
import llama_cpp.llama_cpp as api

BATCH = 2048
LOG = api.llama_log_callback(lambda level, text, data: None)


class Context:
    """A context with room for some streams; its memory is given back at the end."""

    def __init__(self, model, streams: int, tokens: int, threads: int):
        params = api.llama_context_default_params()
        params.n_ctx = streams * (-(-tokens // 256) * 256)
        params.n_batch = BATCH
        params.n_seq_max = streams
        params.n_threads = params.n_threads_batch = threads
        params.kv_unified = False
        self.handle = api.llama_init_from_model(model, params)
        if not self.handle:
            raise RuntimeError("llama_init_from_model failed")
        self.memory = api.llama_get_memory(self.handle)
        self.batch = api.llama_batch_init(max(BATCH, streams), 0, 1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        api.llama_batch_free(self.batch)
        api.llama_free(self.handle)

    def decode(self, rows) -> float:
        """Runs rows of (token, position, stream, wants logits); returns the seconds that it took."""
        self.batch.n_tokens = len(rows)
        for i, (token, position, stream, logits) in enumerate(rows):
            self.batch.token[i] = token
            self.batch.pos[i] = position
            self.batch.n_seq_id[i] = 1
            self.batch.seq_id[i][0] = stream
            self.batch.logits[i] = logits
        began = time.perf_counter()
        code = api.llama_decode(self.handle, self.batch)
        api.llama_synchronize(self.handle)
        seconds = time.perf_counter() - began
        if code != 0:
            raise RuntimeError(f"llama_decode returned {code}")
        return seconds

    def prompt(self, tokens: int) -> float:
        """Runs a prompt in stream 0, with logits of its last token."""
        rows = [(token(i), i, 0, i == tokens - 1) for i in range(tokens)]
        return sum(self.decode(rows[at : at + BATCH]) for at in range(0, tokens, BATCH))


class Engine:
    """The model, and the cases."""

    def __init__(self, args):
        self.args = args
        api.llama_log_set(LOG, None)
        api.llama_backend_init()
        began = time.perf_counter()
        params = api.llama_model_default_params()
        params.n_gpu_layers = 0
        self.model = api.llama_model_load_from_file(str(args.model).encode(), params)
        if not self.model:
            raise RuntimeError(f"llama.cpp cannot load {args.model}")
        self.load_seconds = time.perf_counter() - began

    def describe(self) -> dict:
        """What was loaded."""
        return {
            "engine": "llama.cpp",
            "threads": self.args.threads,
            "load_seconds": self.load_seconds,
            "version": f"llama-cpp-python {llama_cpp.__version__}",
            "system": api.llama_print_system_info().decode(),
        }

    def answer(self, case: str) -> dict:
        """Runs a case by name."""
        name, *numbers = case.split(":")
        numbers = [int(number) for number in numbers]
        try:
            if name == "prefill" and len(numbers) == 1:
                return {"case": case, "units": numbers[0], "seconds": self.prefill(*numbers)}
            if name == "decode":
                return {"case": case, "units": numbers[0], "seconds": self.streams(*numbers)}
        except RuntimeError as error:
            return {"case": case, "error": str(error)}
        return {"case": case, "error": "not measured with this engine"}

    def repeat(self, run) -> list[float]:
        """As the other half does: the first one warms up, unless it takes all the time by itself."""
        first = run()
        seconds = []
        began = time.perf_counter()
        while first < self.args.seconds and (not seconds or time.perf_counter() - began < self.args.seconds):
            seconds.append(run())
        return seconds or [first]

    def prefill(self, tokens: int) -> list[float]:
        """Prompts of `tokens` tokens, one after the other."""
        with Context(self.model, 1, tokens, self.args.threads) as context:

            def run():
                api.llama_memory_clear(context.memory, False)
                return context.prompt(tokens)

            return self.repeat(run)

    def streams(self, streams: int, tokens: int) -> list[float]:
        """One token for each stream, again and again at the same position."""
        state = self.state(streams, tokens)
        with Context(self.model, streams, tokens + 1, self.args.threads) as context:
            self.restore(context, state, tokens)
            for stream in range(1, streams):
                api.llama_memory_seq_cp(context.memory, 0, stream, -1, -1)
            rows = [(token(stream), tokens, stream, 1) for stream in range(streams)]

            def run():
                seconds = context.decode(rows)
                for stream in range(streams):
                    api.llama_memory_seq_rm(context.memory, stream, tokens, -1)
                return seconds

            run()  # copies the streams' cells too
            return self.repeat(run)

    def state(self, streams: int, tokens: int) -> Path:
        """A file with the KV cells of a prompt, computed the first time; it fits contexts with as many streams. What is
        in the cells is no matter, so all files of a model share it."""
        sizes = [api.llama_model_n_params(self.model), api.llama_model_n_layer(self.model), streams, tokens]
        path = self.args.states / f"{'-'.join(map(str, sizes))}.state"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            with Context(self.model, streams, tokens, self.args.cores) as context:
                context.prompt(tokens)
                kept = (api.llama_token * 1)(0)
                part = path.with_suffix(".part")
                if not api.llama_state_seq_save_file(context.handle, str(part).encode(), 0, kept, 1):
                    raise RuntimeError(f"cannot write {part}")
                part.rename(path)
        return path

    def restore(self, context: Context, state: Path, tokens: int) -> None:
        """Fills stream 0 from a file."""
        kept, count = (api.llama_token * 1)(), ctypes.c_size_t()
        read = api.llama_state_seq_load_file(context.handle, str(state).encode(), 0, kept, 1, ctypes.byref(count))
        if not read or api.llama_memory_seq_pos_max(context.memory, 0) != tokens - 1:
            raise RuntimeError(f"{state} does not fit: delete it")


def token(i: int) -> int:
    """The tokens that the other half uses."""
    return 1000 + i * 7919 % 40_000


def main() -> None:
    """Loads, then answers a line for each line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--cores", type=int, required=True, help="threads for what is not measured")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--states", type=Path, required=True)
    engine = Engine(parser.parse_args())
    print(json.dumps(engine.describe()), flush=True)
    for line in sys.stdin:
        print(json.dumps(engine.answer(line.strip())), flush=True)


if __name__ == "__main__":
    main()
