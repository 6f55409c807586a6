"""Enriched flights as they should be, made by the plain join; for tests of what judges them.

Not from Spark: a test changes them to see whether the judgement notices.
"""

import pyarrow as pa
import pyarrow.compute as pc

from demo.audit import FOUND, reference
from demo.dimension import DIMENSIONS


def enriched_flights(flights: pa.Table) -> pa.Table:
    """The flights with the columns and outcomes of all four dimensions."""
    enriched = flights
    for dimension in DIMENSIONS:
        answers = reference(flights, dimension)
        outcome = pc.if_else(pc.is_valid(answers[FOUND]), "hit", "missing").combine_chunks()
        status = pa.StructArray.from_arrays([outcome], names=["outcome"])
        for name in answers.column_names[:-1]:
            enriched = enriched.append_column(name, answers[name])
        enriched = enriched.append_column(dimension.status_column, status)
    return enriched
