"""Fuzzer of the frame decoders by libFuzzer: `python -m tools.fuzz.fuzzer`.

`-max_total_time=600 -artifact_prefix=out/ FOLDER` runs for ten minutes, writes new corpus entries
to FOLDER, and a failing input to `out`. A crash of Arrow ends the process.
"""

import random
import sys

import atheris
import pyarrow as pa

# First of all imports: coverage is measured only in modules that are imported here.
with atheris.instrument_imports(include=["lookup_core", "json", "tools.fuzz.frames"]):
    from tools.fuzz.frames import take

from tools.fuzz.mutator import mutated

_MOST_ARROW_BYTES = 256 * 1024  # that one input may allocate
_OWN_SHARE = 0.7  # of the mutations; the others are libFuzzer's
# A declared size must not become an allocation, nor a deep input an endless loop.
_LIMITS = ("-rss_limit_mb=1024", "-malloc_limit_mb=256", "-timeout=10", "-max_len=8192")


def mutate(data: bytes, max_size: int, seed: int) -> bytes:
    """A mutation of at most `max_size` bytes."""
    if random.Random(seed).random() < _OWN_SHARE:
        return mutated(data, seed)[:max_size]
    return bytes(atheris.Mutate(data, min(len(data) + 64, max_size)))


def main() -> None:
    """Run until the time limit, or until an input fails."""
    atheris.Setup([sys.argv[0], *_LIMITS, *sys.argv[1:]], _try, custom_mutator=mutate)
    atheris.Fuzz()


def _try(data: bytes) -> None:
    pool = pa.default_memory_pool()
    most_bytes = pool.max_memory()
    take(data)
    assert pool.max_memory() <= max(most_bytes, _MOST_ARROW_BYTES), "an input allocates too much"


if __name__ == "__main__":
    main()
