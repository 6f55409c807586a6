"""Session settings: those that change what a row looks like, or end a session that works.

A role, a database, the server and the DSN may set each of them. Sessions of the sidecar fix all
that are listed here. Not listed are the settings that belong to SQL of the user, and that all
sessions of a role share: `search_path`, `role`, `lc_monetary`, `lc_numeric`, `lc_time`,
`default_text_search_config` and `timezone_abbreviations`. Settings of plans change no row.
"""

from collections.abc import Mapping

ISOLATION = "default_transaction_isolation"
READ_COMMITTED = {ISOLATION: "read committed"}  # a standby refuses serializable transactions
# Startup parameters of lookups.
AT_START = {
    **READ_COMMITTED,
    "jit": "off",  # compilation takes longer than any batch of index lookups
    "row_security": "off",  # rows hidden by a policy are an error, not missing
}

# Texts of values, and conversions between types; they take effect when a query runs.
_TEXTS = {
    "array_nulls": "on",
    "bytea_output": "hex",  # also bytes in JSON and in composite values
    "datestyle": "ISO, MDY",  # also ranges of times
    "extra_float_digits": "1",  # floats are exact, also in JSON, points and composite values
    "intervalstyle": "postgres",
    "quote_all_identifiers": "off",  # also names of types and tables
    "timezone": "UTC",  # timestamps with time zone as texts, in JSON and in ranges
    "xmlbinary": "base64",
    "xmloption": "content",
}
# What SQL of the configuration means; they take effect when the server parses a statement.
PARSING = {"standard_conforming_strings": "on", "transform_null_equals": "off"}
# The statement timeout alone ends a query; a lookup plans and runs without parallel workers' start.
_RUNNING = {
    "default_transaction_deferrable": "off",
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "0",  # from version 14
    "lock_timeout": "0",
    "transaction_timeout": "0",  # from version 17
}
_FIXED = {**AT_START, **_TEXTS, **PARSING, **_RUNNING}

# A parameter of this name does not exist: the error of the server names it.
HIDDEN_ROWS = "sidelook.row_security_hides_rows"
_TAG = "$sidelook$"


def fixed_settings(others: Mapping[str, str], *, is_local: bool) -> str:
    """The query that fixes these settings and `others`; a setting that the server lacks is left.

    With `is_local`, they end with the transaction.
    """
    values = ", ".join(f"('{name}', '{value}')" for name, value in {**_FIXED, **others}.items())
    # The names of pg_settings have capitals in DateStyle and others.
    return (
        f"SELECT pg_catalog.count(pg_catalog.set_config(s.name, w.value, {str(is_local).lower()}))"  # noqa: S608  constants only
        f" FROM pg_catalog.pg_settings s JOIN (VALUES {values}) AS w (name, value)"
        " ON w.name = pg_catalog.lower(s.name)"
    )


def guard(*, table_id: int, sql: str | None) -> str:
    """A condition that is never true, and that the server evaluates once for a query.

    It fixes the settings until the end of the transaction, makes the transaction read-only, and
    fails if row-level security hides rows of the table, or of any table below `sql`. The server
    decides about row-level security when it plans: `sql` is planned again, after the settings.
    """
    local = {**_TEXTS, "row_security": "off", "transaction_read_only": "on"}
    calls = [
        f"CASE WHEN pg_catalog.current_setting('{name}') <> '{value}'"  # most are right already
        f" THEN pg_catalog.set_config('{name}', '{value}', true) END"
        for name, value in local.items()
    ]
    if sql is None:
        fault = f"pg_catalog.current_setting('{HIDDEN_ROWS}')"
        calls.append(f"CASE WHEN pg_catalog.row_security_active({table_id}::oid) THEN {fault} END")
    else:
        tag = _TAG
        while tag in sql:
            tag = f"{tag[:-1]}_$"
        calls.append(f"pg_catalog.query_to_xml({tag}{sql}{tag}, false, false, '')")
    return f"(SELECT pg_catalog.concat({', '.join(calls)})) = ''"


# Behind PgBouncer, no session of its own fixes these.
UNFIXED = (
    "SELECT s.name, s.setting, w.value FROM pg_catalog.pg_settings s JOIN (VALUES "  # noqa: S608  constants only
    + ", ".join(f"('{name}', '{value}')" for name, value in PARSING.items())
    + ") AS w (name, value) ON w.name = s.name WHERE s.setting <> w.value ORDER BY s.name"
)
