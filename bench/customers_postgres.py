"""A PostgreSQL with customers, for what only a real database can show.

Made anew for each part that uses it; what Spark jobs look up stands in `workload_postgres`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from demo.embedded_postgres import embedded_postgres

# Values are put in by the client: a table cannot be made from bound parameters.
STATEMENTS = (
    "DROP TABLE IF EXISTS customers",
    """CREATE TABLE customers AS SELECT id::bigint AS id, 'customer ' || id AS name,
        'segment ' || id %% 4 AS segment FROM generate_series(0, %(rows)s - 1) AS id""",
    "ALTER TABLE customers ADD PRIMARY KEY (id)",
    "ANALYZE customers",
)


@contextmanager
def customers_postgres(folder: Path, *, rows: int) -> Iterator[str]:
    """Start the server with so many rows, ids from 0; how to reach it. Stopped at the end."""
    with embedded_postgres(folder) as server:
        dsn = server.get_uri()
        with psycopg.connect(dsn, autocommit=True, cursor_factory=psycopg.ClientCursor) as admin:
            for statement in STATEMENTS:
                admin.execute(statement.encode(), {"rows": rows})
        yield dsn
