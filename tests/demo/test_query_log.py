"""Counting the executed lookups in a log of PostgreSQL."""

from pathlib import Path

from demo.postgres import query_log

LOOKUP = """\
user=sidelook application=sidelook LOG:  execute __asyncpg_stmt_3__: SELECT k.ordinal, t."year"
	FROM unnest($1::text[]) WITH ORDINALITY AS k(k1, ordinal)
	JOIN "public"."planes" AS t ON t."tailnum" = k.k1
"""
OTHERS = """\
user=sidelook application=sidelook LOG:  execute __asyncpg_stmt_1__: SELECT 'planes'::regclass
user=postgres application=psql LOG:  statement: SELECT * FROM planes WITH ORDINALITY
user=sidelook application=sidelook ERROR:  canceling statement due to user request
user=sidelook application=sidelook STATEMENT:  SELECT 1 FROM planes -- WITH ORDINALITY
user=sidelook application=sidelook LOG:  statement: EXPLAIN SELECT 1 FROM planes -- WITH ORDINALITY
"""


def test_each_execution_counts_once(tmp_path: Path) -> None:
    """A lookup counts as often as it was executed, over how many lines it may go."""
    log = query_log(_file(tmp_path, ""))

    log.path.write_text(LOOKUP + OTHERS + LOOKUP)

    assert log.count("sidelook", ["planes", "weather"]) == {"planes": 2, "weather": 0}


def test_other_statements_do_not_count(tmp_path: Path) -> None:
    """Neither the catalog's queries, nor another user's, nor what failed is a lookup."""
    log = query_log(_file(tmp_path, ""))

    log.path.write_text(OTHERS)

    assert log.count("sidelook", ["planes"]) == {"planes": 0}


def test_earlier_executions_do_not_count(tmp_path: Path) -> None:
    """What was in the log before is not counted: the database is used again and again."""
    log = query_log(_file(tmp_path, LOOKUP))

    log.path.write_text(LOOKUP + LOOKUP)

    assert log.count("sidelook", ["planes"]) == {"planes": 1}


def _file(folder: Path, text: str) -> Path:
    path = folder / "log"
    path.write_text(text)
    return path
