"""PostgreSQL connector: lookups, snapshot loads, notifications."""

from importlib import resources


def sql_text(name: str, package: str = __name__) -> str:
    """The SQL in a file of the package's folder `sql`."""
    return (resources.files(package) / "sql" / f"{name}.sql").read_text()
