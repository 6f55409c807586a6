"""What the script of the triggers says; `tests/integration` runs it."""

import pytest

from lookup_core.errors import ErrorCode, InvalidRequest
from service.connectors.postgres.triggers import TriggerNames, trigger_names, trigger_sql

TABLES = [  # as SQL reads them, and what they are in the catalog
    ("customers", '"customers"'),
    ("public.Customers", '"public"."customers"'),
    (' "Sales" . "Big ""One""" ', '"Sales"."Big ""One"""'),
    ("shop.public.customers", '"public"."customers"'),
    ('"a.b"', '"a.b"'),
    ("ÄRGER", '"Ärger"'),
]


def made_names(script: str) -> list[str]:
    """The names of the function and the triggers that the script makes."""
    made = [line.split() for line in script.splitlines() if line.startswith("CREATE ")]
    return [words[4] if words[1] == "OR" else words[2] for words in made]


@pytest.mark.parametrize(("table", "quoted_table"), TABLES)
def test_table_is_read_as_sql_reads_it(table: str, quoted_table: str) -> None:
    """Unquoted names are folded as PostgreSQL folds them, and all are quoted again."""
    script = trigger_sql(table, ["id"], channel="changes")

    assert script.count(f" ON {quoted_table}\n") == 4


def test_each_event_has_a_trigger() -> None:
    """One function, beside the table, and four triggers, one for each kind of statement."""
    script = trigger_sql("public.customers", ["id"], channel="sidelook_customers")

    assert made_names(script) == [
        '"public"."sidelook_customers_0268add5"()',
        '"sidelook_customers_insert"',
        '"sidelook_customers_update"',
        '"sidelook_customers_delete"',
        '"sidelook_customers_truncate"',
    ]


def test_names_are_those_of_the_script() -> None:
    """Who looks for the triggers finds what the script has made, however the table was named."""
    names = [trigger_names(each, ["id"], channel="c") for each in ("t", "public.T", '"t"')]
    made = made_names(trigger_sql("public.t", ["id"], channel="c"))

    assert names == [names[0]] * 3
    assert made[0] == f'"public"."{names[0].function}"()'
    assert made[1:] == [f'"{name}"' for name in names[0].triggers.values()]
    assert names[0] == TriggerNames(
        "c_94cf3072", {each: f"c_{each}" for each in ("insert", "update", "delete", "truncate")}
    )


def test_script_tells_how_to_remove_it() -> None:
    """The comment holds the statement that takes everything away again."""
    script = trigger_sql("customers", ["id"], channel="c")

    assert f"--   DROP FUNCTION {made_names(script)[0]} CASCADE;\n" in script


@pytest.mark.parametrize(
    ("table", "key"),
    [("other", ["id"]), ("customers", ["id", "region"]), ("customers", ["region"])],
)
def test_functions_are_not_shared(table: str, key: list[str]) -> None:
    """Another table or key with the same channel has a function of its own."""
    first = made_names(trigger_sql("customers", ["id"], channel="c"))[0]

    assert made_names(trigger_sql(table, key, channel="c"))[0] != first


def test_long_channels_leave_room() -> None:
    """Names are cut to 63 bytes, and those of different channels stay different."""
    scripts = [trigger_sql("t", ["id"], channel="c" * 61 + end) for end in ("ä", "ö")]
    first, second = (made_names(script) for script in scripts)

    assert all(len(name.strip('"()').encode()) <= 63 for name in first + second)
    assert not set(first) & set(second)


def test_key_columns_are_quoted() -> None:
    """Columns are named as the catalog has them, beside the rows that they belong to."""
    script = trigger_sql("t", ["Id", 'a"b'], channel="c")

    assert 'ELSE to_jsonb(new_rows."Id") END,' in script
    assert 'ELSE to_jsonb(new_rows."a""b") END)::text' in script
    assert 'WHERE old_rows."Id" IS NOT NULL AND old_rows."a""b" IS NOT NULL' in script


def test_channel_is_a_literal() -> None:
    """Quotes and backslashes of the channel stay inside of the text that it is."""
    script = trigger_sql("t", ["id"], channel=r"it's \ there")

    assert script.count(r"pg_notify(E'it''s \\ there', ") == 2


def test_names_do_not_end_the_body() -> None:
    """A name that holds the mark around the function's body gets another mark."""
    script = trigger_sql("t", ["$sidelook$"], channel="c")

    assert script.count("$sidelook_$") == 2


@pytest.mark.parametrize("table", ["", "a.", ".a", "a..b", "a.b.c.d", 'a"b', '"a', "a b", "a; b"])
def test_what_is_no_name_is_refused(table: str) -> None:
    """Whatever PostgreSQL would not read as a name is an error, and never part of a script."""
    with pytest.raises(InvalidRequest) as refusal:
        trigger_sql(table, ["id"], channel="c")

    assert refusal.value.detail == f"{table}: is not the name of a table"


@pytest.mark.parametrize("name", ["line\nbreak", "n" * 64])
@pytest.mark.parametrize("place", ["table", "key", "channel"])
def test_unusable_names_are_refused(name: str, place: str) -> None:
    """Names that would break out of a comment, or that would be cut, are refused everywhere."""
    names = {"table": "t", "key": "k", "channel": "c"} | {place: name}

    with pytest.raises(InvalidRequest) as refusal:
        trigger_sql(f'"{names["table"]}"', [names["key"]], channel=names["channel"])

    assert refusal.value.code is ErrorCode.BAD_REQUEST
    assert refusal.value.detail.startswith(f"{name!a} has more than 63 bytes, or characters")
