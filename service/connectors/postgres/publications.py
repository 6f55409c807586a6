"""Publications: whether one of them reports every change of a table, as far as the catalog shows.

Logical decoding may also use a plugin without publications, or a publication of another server.
"""

from dataclasses import dataclass

from service.connectors.postgres.configured_sql import CatalogRow, RunQuery, run_own, unavailable
from service.connectors.postgres.settings import PostgresSettings
from service.connectors.postgres.table import quoted

# The table, with each publication that counts, and its entry there; without one, a row of NULLs.
# Versions before 15 have neither filters nor column lists.
_PUBLICATIONS = """
SELECT pg_catalog.format('%I.%I', t.nspname, c.relname) AS table, c.relkind::text AS kind,
       (SELECT i.inhparent::regclass::text FROM pg_catalog.pg_inherits i
        WHERE c.relispartition AND i.inhrelid = c.oid) AS whole,
       b.pubname::text AS name, b.pubviaroot AS is_via_root,
       ARRAY(SELECT o.name FROM (VALUES ('insert', b.pubinsert), ('update', b.pubupdate),
                                        ('delete', b.pubdelete)) AS o (name, is_reported)
             WHERE NOT o.is_reported) AS unreported,
       e.row IS NOT NULL AS is_member, e.row ->> 'rowfilter' AS filter,
       ARRAY(SELECT k.name FROM pg_catalog.unnest($2::text[]) AS k (name)
             WHERE pg_catalog.jsonb_typeof(e.row -> 'attnames') = 'array'
                   AND NOT (e.row -> 'attnames') @> pg_catalog.to_jsonb(k.name)) AS lost_keys,
       c.relpersistence = 'u' AS is_unlogged,
       c.relreplident = 'f' OR EXISTS (
           SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid AND CASE c.relreplident
           WHEN 'd' THEN i.indisprimary AND i.indimmediate WHEN 'i' THEN i.indisreplident END
       ) AS has_identity
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace t ON t.oid = c.relnamespace
LEFT JOIN pg_catalog.pg_publication b ON b.pubname = coalesce($3::text, b.pubname)
LEFT JOIN LATERAL (
    SELECT pg_catalog.to_jsonb(p) AS row FROM pg_catalog.pg_publication_tables p
    WHERE p.pubname = b.pubname AND p.schemaname = t.nspname AND p.tablename = c.relname
) AS e ON true
WHERE c.oid = $1::oid ORDER BY b.pubname
"""
# What the publications of a table depend on, whatever its entry is; quick, unlike that view.
PUBLICATIONS_VERSION = """
WITH RECURSIVE relative AS (
    SELECT $1::oid AS id
    UNION
    SELECT i.inhparent FROM relative r JOIN pg_catalog.pg_inherits i ON i.inhrelid = r.id
), membership AS (
    SELECT b.oid, b.puballtables AS has_all, b.xmin,  -- also if it was another one for a moment
           ARRAY(SELECT r::text FROM pg_catalog.pg_publication_rel r
                 WHERE r.prpubid = b.oid AND r.prrelid IN (SELECT m.id FROM relative m)
                 ORDER BY 1) AS entries,
           ARRAY(SELECT d.objid FROM pg_catalog.pg_depend d
                 WHERE d.refclassid = 'pg_catalog.pg_publication'::regclass AND d.refobjid = b.oid
                 AND d.classid = pg_catalog.to_regclass('pg_catalog.pg_publication_namespace')
                 ORDER BY 1) AS schemas
    FROM pg_catalog.pg_publication b WHERE b.pubname = coalesce($2::text, b.pubname)
)
SELECT pg_catalog.concat_ws(' ', pg_catalog.count(*) > 0, pg_catalog.md5(pg_catalog.string_agg(
           m::text, ',' ORDER BY m.oid)
           FILTER (WHERE m.entries <> '{}' OR m.schemas <> '{}'
                   OR m.has_all))) AS version
FROM membership m
"""


@dataclass(frozen=True, slots=True)
class Publications:
    """The publications that report all changes of a table, and why the others do not.

    Both are empty for a database without publications.
    """

    complete: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()


async def read_publications(
    run: RunQuery, settings: PostgresSettings, table_id: int
) -> Publications:
    """Read them; raises BackendError if none reports all changes, with the remedy.

    A database without publications is accepted, if its log has all changes of the table: the
    connector may use another plugin.
    """
    records = await run_own(run, _PUBLICATIONS, table_id, settings.key, settings.publication)
    found = [record for record in records if record["name"] is not None]
    if not found and settings.publication is not None:
        name = quoted(settings.publication)
        remedy = f"CREATE PUBLICATION {name} FOR TABLE {records[0]['table']}, or correct it"
        reason = f"publication {name} of refresh.changelog.publication does not exist; {remedy}"
        raise unavailable(settings, reason, is_permanent=False)
    # Those that have the table come first; the others may be of other tables.
    faults = {
        record["name"]: fault
        for record in sorted(records, key=lambda record: not record["is_member"])
        if (fault := _fault(record)) is not None
    }
    if faults and len(faults) == len(records):
        raise unavailable(settings, next(iter(faults.values())), is_permanent=False)
    complete = tuple(record["name"] for record in found if record["name"] not in faults)
    members = {record["name"] for record in found if record["is_member"]}
    return Publications(complete, tuple(faults[name] for name in faults if name in members))


def _fault(record: CatalogRow) -> str | None:
    """Why a publication, or another plugin, does not report all changes, with the remedy.

    None if it does.
    """
    if (fault := _fault_of_log(record)) is not None:
        other = "or, if the connector reads another server, refresh.changelog.publication: none"
        return f"{fault}; {other}"
    if record["kind"] == "p" and not record["is_via_root"]:
        remedy = "ALTER PUBLICATION … SET (publish_via_partition_root = true)"
        reason = "no publication reports the changes of its partitions under its name"
        return f"{reason}; {remedy}, and restart the connector"
    if record["whole"] is not None and not record["is_member"]:
        whole = record["whole"]
        reason = f"no publication reports its changes under its name, but as those of {whole}"
        return f"{reason}; name {whole}, with a source.where"
    return None if record["name"] is None else _omission(record, quoted(record["name"]))


def _fault_of_log(record: CatalogRow) -> str | None:
    table = record["table"]
    if record["is_unlogged"]:
        return f"the log has no changes of an unlogged table; ALTER TABLE {table} SET LOGGED"
    # With a publication that has them, deletions fail instead.
    if record["name"] is None and record["kind"] == "r" and not record["has_identity"]:
        remedy = f"ALTER TABLE {table} REPLICA IDENTITY FULL"
        return f"the log has no deletions of a table without a replica identity; {remedy}"
    return None


def _omission(record: CatalogRow, name: str) -> str | None:
    added = f"ALTER PUBLICATION {name} ADD TABLE {record['table']}"
    again = f"ALTER PUBLICATION {name} DROP TABLE {record['table']}; {added}"
    if not record["is_member"]:
        other = "or, if the connector reads another server, refresh.changelog.publication: none"
        return f"publication {name} does not report its changes; {added}; {other}"
    if record["unreported"]:
        missing = " and ".join(record["unreported"])
        remedy = f"ALTER PUBLICATION {name} SET (publish = 'insert, update, delete, truncate')"
        return f"publication {name} does not report each {missing}; {remedy}"
    if record["filter"] is not None:
        return f"publication {name} has a row filter, which omits changes; {again}"
    if record["lost_keys"]:
        keys = ", ".join(record["lost_keys"])
        reason = f"the column list of publication {name} omits the key column {keys}; {again}"
        return f"{reason}; a generated column needs publish_generated_columns, or refresh.listen"
    return None
