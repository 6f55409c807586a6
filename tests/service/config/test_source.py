"""Where rows live."""

from pathlib import Path

import pytest

from service.config.source import ParquetSource, PostgresSource
from tests.service.config.configuration import dimension, dimension_faults

POSTGRES = {"kind": "postgres", "table": "public.airports"}
ADDRESS = "postgresql://u:geheim@h/d"


@pytest.fixture
def dsn_file(tmp_path: Path) -> Path:
    """A file with an address, as it should be."""
    path = tmp_path / "dsn"
    path.touch(mode=0o600)
    path.write_text(f"{ADDRESS}\n")
    return path


def test_kind_chooses_the_source() -> None:
    """`kind` tells what the other keys are."""
    source = dimension().source

    assert source == ParquetSource(kind="parquet", path=Path("/data/airports.parquet"))


def test_address_may_stand_in_a_file(dsn_file: Path) -> None:
    """The address is read when it is needed, so that it may change."""
    source = PostgresSource.model_validate(POSTGRES | {"dsn_file": dsn_file})
    first = source.read_dsn()
    dsn_file.write_text("postgresql://u:rotated@h/d")

    assert (first, source.read_dsn()) == (ADDRESS, "postgresql://u:rotated@h/d")


def test_address_is_never_shown() -> None:
    """No text of the configuration shows the address."""
    source = PostgresSource.model_validate(POSTGRES | {"dsn": ADDRESS})

    assert source.read_dsn() == ADDRESS
    assert "geheim" not in f"{source!r}{source}{source.model_dump()}{source.model_dump_json()}"


def test_address_is_given_once(dsn_file: Path) -> None:
    """Neither or both of dsn and dsn_file is a contradiction."""
    refused = "source.dsn_file: give exactly one of source.dsn and source.dsn_file"

    neither = dimension_faults(source={"kind": "postgres", "table": "t"} | {"path": None})
    both = dimension_faults(source=POSTGRES | {"dsn": ADDRESS, "dsn_file": str(dsn_file)})
    absent = dimension_faults(source=POSTGRES | {"dsn": ADDRESS, "dsn_file": "/nowhere"})
    faulty = dimension_faults(source=POSTGRES | {"dsn": "geheim", "dsn_file": str(dsn_file)})

    assert (neither[0], both[0], absent[0], faulty[1]) == (refused,) * 4


def test_file_must_hold_an_address(dsn_file: Path) -> None:
    """A file with something else is refused before the start, and not shown."""
    dsn_file.write_text("geheim")

    found = dimension_faults(source=POSTGRES | {"dsn_file": str(dsn_file)})

    assert found[0].startswith("source.dsn_file: not a PostgreSQL address, such as")
    assert "geheim" not in found[0]


def test_faulty_address_is_one_fault() -> None:
    """An address that is none is told once, not as a missing one, too."""
    found = dimension_faults(source=POSTGRES | {"dsn": "geheim"})

    assert [fault.split(": ")[0] for fault in found] == ["source.dsn", "source.path"]


def test_index_is_required_by_wish() -> None:
    """Without the wish a table is looked up without an index, too."""
    plain = PostgresSource.model_validate(POSTGRES | {"dsn": ADDRESS})
    strict = PostgresSource.model_validate(POSTGRES | {"dsn": ADDRESS, "require_index": True})

    assert (plain.require_index, strict.require_index) == (False, True)


@pytest.mark.parametrize("kind", ["mysql", None, 5])
def test_other_kinds_are_unknown(kind: object) -> None:
    """A kind that is none is refused with those that are."""
    assert dimension_faults(source={"kind": kind}) == [
        "source: kind must be one of 'postgres', 'parquet'"
    ]
