"""A PostgreSQL with customers and documents, for what only a real database can show.

Made anew for each part that uses it; what Spark jobs look up stands in `workload_postgres`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from demo.embedded_postgres import embedded_postgres

# Values are put in by the client: a table cannot be made from bound parameters.
STATEMENTS = (
    "DROP TABLE IF EXISTS customers, documents",
    """CREATE TABLE customers AS SELECT id::bigint AS id, 'customer ' || id AS name,
        'segment ' || id %% 4 AS segment FROM generate_series(0, %(rows)s - 1) AS id""",
    """CREATE TABLE documents AS SELECT id::bigint AS id,
        repeat(md5(id::text), %(document_bytes)s / 32) AS content
        FROM generate_series(0, %(documents)s - 1) AS id""",
    "ALTER TABLE customers ADD PRIMARY KEY (id)",
    "ALTER TABLE documents ADD PRIMARY KEY (id)",
    "ANALYZE customers, documents",
)


@contextmanager
def customers_postgres(
    folder: Path, *, rows: int, documents: int = 1, document_bytes: int = 32
) -> Iterator[str]:
    """Start the server with so many rows, ids from 0; how to reach it. Stopped at the end."""
    sizes = {"rows": rows, "documents": documents, "document_bytes": document_bytes}
    with embedded_postgres(folder) as server:
        dsn = server.get_uri()
        with psycopg.connect(dsn, autocommit=True, cursor_factory=psycopg.ClientCursor) as admin:
            for statement in STATEMENTS:
                admin.execute(statement.encode(), sizes)
        yield dsn
