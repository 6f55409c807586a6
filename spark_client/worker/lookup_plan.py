"""Plan of one lookup of a partition: its keys from the records, and its rows from the answers."""

from dataclasses import dataclass

import pyarrow as pa

from lookup_core.answer import Outcome
from lookup_core.operator.records_in_flight import RunRows
from lookup_core.operator.row_products import even_lists
from lookup_core.operator.run_answers import RunAnswers
from spark_client.lookup_settings import FailurePolicy, KeyColumn, LookupSettings
from spark_client.worker.as_of import AsOfPlan
from spark_client.worker.output_columns import ColumnCasts


@dataclass(frozen=True, slots=True)
class LookupPlan:
    """One lookup of a partition: its keys, casts and settings."""

    dimension: str
    key_columns: tuple[KeyColumn, ...]
    key: pa.Schema
    casts: ColumnCasts
    settings: LookupSettings
    as_of: AsOfPlan | None = None
    expands: bool = False  # answers hold lists of rows
    default: pa.RecordBatch | None = None  # the row of missing keys, and of failed lookups

    @property
    def columns(self) -> pa.Schema:
        """The columns of one row."""
        return self.casts.target if self.as_of is None else self.as_of.pick.columns

    @property
    def sources(self) -> frozenset[int]:
        """The lookups whose columns the key needs."""
        lookups = {column.lookup for column in self.key_columns}
        return frozenset(lookup for lookup in lookups if lookup is not None)

    def answers(self, records: pa.RecordBatch) -> RunAnswers:
        """The answers to these records, of which no key is known yet."""
        as_of = None if self.as_of is None else self.as_of.times(records)
        settled = [
            outcome
            for outcome in (Outcome.TIMEOUT, Outcome.ERROR)
            if self.settings.policy(outcome) is FailurePolicy.DEFAULT
        ]
        default = self.default
        defaults = {} if default is None else dict.fromkeys([Outcome.DEFAULT, *settled], default)
        return RunAnswers(records.num_rows, self.columns, as_of=as_of, defaults=defaults)

    def rows(self, sent: pa.RecordBatch) -> pa.RecordBatch:
        """Rows of an answer in the output's types; raises InvalidRequest if they do not fit."""
        rows = self.casts.apply(sent)
        return even_lists(rows, dimension=self.dimension) if self.expands else rows

    def keys_of(self, run: RunRows) -> list[pa.Array]:
        """The key's columns for some rows of a run."""
        return [_key_column(run, column) for column in self.key_columns]

    def keys_in(self, run: RunRows) -> pa.RecordBatch:
        """The keys of some rows of a run, as they are sent."""
        return pa.record_batch(self.keys_of(run), schema=self.key)


def _key_column(run: RunRows, column: KeyColumn) -> pa.Array:
    if column.lookup is not None:
        return run.answers[column.lookup].column_at(run.rows, column.position)
    values = run.records.column(column.position)
    return values if len(run.rows) == len(values) else values.take(pa.array(run.rows))
