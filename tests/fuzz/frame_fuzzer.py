"""The coverage-guided fuzzer of the decoders, a program: `python -m tests.fuzz.frame_fuzzer`.

Takes libFuzzer's options: `-max_total_time=600 -artifact_prefix=out/ FOLDER` runs for ten minutes,
learns in FOLDER, and leaves an input that fails in `out`. Not a test: a crash of Arrow ends it.
"""

import random
import sys

import atheris
import pyarrow as pa

# Before anything else imports them: only what is imported here is counted.
with atheris.instrument_imports(include=["lookup_core", "json", "tests.fuzz.frame_target"]):
    from tests.fuzz.frame_target import take

from tests.fuzz.frame_mutator import mutated

_MOST_ARROW_BYTES = 256 * 1024  # that an input of a few kilobytes may take at any time
_OWN_SHARE = 0.7  # of the changes; the others are libFuzzer's
# A declared size must not become an allocation, nor a deep or long input an endless loop.
_LIMITS = ("-rss_limit_mb=1024", "-malloc_limit_mb=256", "-timeout=10", "-max_len=8192")


def mutate(data: bytes, max_size: int, seed: int) -> bytes:
    """Another input, at most so large."""
    if random.Random(seed).random() < _OWN_SHARE:  # noqa: S311 -- repeatable on purpose
        return mutated(data, seed)[:max_size]
    return bytes(atheris.Mutate(data, min(len(data) + 64, max_size)))


def main() -> None:
    """Run until time is up or an input fails."""
    atheris.Setup([sys.argv[0], *_LIMITS, *sys.argv[1:]], _try, custom_mutator=mutate)
    atheris.Fuzz()


def _try(data: bytes) -> None:
    pool = pa.default_memory_pool()
    most_bytes = pool.max_memory()
    take(data)
    assert pool.max_memory() <= max(most_bytes, _MOST_ARROW_BYTES), "it was worth too much"


if __name__ == "__main__":
    main()
