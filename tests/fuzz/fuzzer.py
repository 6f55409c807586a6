"""Fuzzer of the frame decoders by libFuzzer: `python -m tests.fuzz.fuzzer`.

`-max_total_time=600 -artifact_prefix=out/ FOLDER` runs for ten minutes, writes new corpus entries
to FOLDER, and a failing input to `out`. A crash of Arrow ends the process.
"""

import sys

import atheris
import pyarrow as pa

# First of all imports: coverage is measured only in modules that are imported here.
with atheris.instrument_imports(include=["lookup_core", "json", "tests.fuzz.frames"]):
    from tests.fuzz.frames import take

_MOST_ARROW_BYTES = 256 * 1024  # that one input may allocate
# A declared size must not become an allocation, nor a deep input an endless loop.
_LIMITS = ("-rss_limit_mb=1024", "-malloc_limit_mb=256", "-timeout=10", "-max_len=8192")


def main() -> None:
    """Run until the time limit, or until an input fails."""
    atheris.Setup([sys.argv[0], *_LIMITS, *sys.argv[1:]], _try)
    atheris.Fuzz()


def _try(data: bytes) -> None:
    pool = pa.default_memory_pool()
    most_bytes = pool.max_memory()
    take(data)
    assert pool.max_memory() <= max(most_bytes, _MOST_ARROW_BYTES), "an input allocates too much"


if __name__ == "__main__":
    main()
