"""PostgreSQL table as the catalog describes it, and the version of all that its rows depend on.

Rows change without a change of their table: through labels, types, functions, policies, and the
columns of relations whose rows are values. Bodies of functions count; objects that only the text of
a body names are not known to the catalog.
"""

from dataclasses import dataclass
from enum import Enum

import pyarrow as pa

from lookup_core.dimension_schema import DimensionSchema, TableOrigin, VersionColumns
from lookup_core.operator.as_of import is_moment
from lookup_core.row_bytes import ROW_BYTES
from service.connectors.postgres.column_types import ColumnReading, KeySending, quoted
from service.connectors.postgres.triggers import TRUNCATE_TYPE


class RelationKind(Enum):
    """The kind of a relation; the values are those of `pg_class.relkind`."""

    TABLE = "r"
    PARTITIONED = "p"
    VIEW = "v"
    MATERIALIZED_VIEW = "m"
    FOREIGN_TABLE = "f"
    QUERY = "query"  # in the configuration


@dataclass(frozen=True, slots=True)
class PostgresTable:
    """Relation with its names in the catalog, its key columns and its other columns."""

    schema_name: str  # empty for a query
    name: str
    keys: tuple[tuple[str, KeySending], ...]  # in the order of the configuration
    columns: tuple[tuple[str, ColumnReading], ...]
    table_id: int = 0  # oid
    primary_key: tuple[str, ...] = ()  # empty if there is none that may be read
    reports_rows: bool = False  # rows of its changelog equal queried rows; see the catalog
    has_full_identity: bool = False  # REPLICA IDENTITY FULL, of each partition
    loses_keys: bool = False  # see TableOrigin
    versions: VersionColumns | None = None
    kind: RelationKind = RelationKind.TABLE
    has_foreign_parts: bool = False  # a partition is a foreign table
    query: str | None = None  # one SELECT, of a RelationKind.QUERY
    where: str | None = None  # condition of the rows that the dimension has
    is_guarded: bool = False  # each lookup fixes its settings: sessions have those of the role
    row_bytes: int = ROW_BYTES  # of one row, or of all rows of a key with several
    has_several_rows: bool = False  # per key
    database: str | None = None
    is_subscribed: bool = False  # see TableOrigin
    version: str = ""  # see TableOrigin

    @property
    def has_sql(self) -> bool:
        """Whether SQL of a view or the configuration is run for its rows."""
        return self.where is not None or self.kind in {RelationKind.VIEW, RelationKind.QUERY}

    @property
    def sql_name(self) -> str:
        """Schema and name, quoted; for messages only if it is a query."""
        if self.query is not None:
            return self.name
        return f"{quoted(self.schema_name)}.{quoted(self.name)}"

    @property
    def is_unique(self) -> bool:
        """Whether its key has its primary key: a key has at most one row."""
        return bool(self.primary_key) and {*self.primary_key} <= {*dict(self.keys)}

    @property
    def may_have_large_rows(self) -> bool:
        """Whether the rows of a key have no small bound of their bytes."""
        return self.has_several_rows or any(each.may_be_large for _, each in self.columns)

    @property
    def has_row_places(self) -> bool:
        """Whether its rows have a `ctid`."""
        has_storage = self.kind in {RelationKind.TABLE, RelationKind.MATERIALIZED_VIEW}
        return has_storage or (self.kind is RelationKind.PARTITIONED and not self.has_foreign_parts)

    def from_item(self, *, sample: str = "", with_places: bool = False) -> str:
        """The FROM item of its rows, named `t`; `sample` is a TABLESAMPLE clause.

        A filter has a SELECT of its own, where no other name is visible. Its rows have no `ctid`
        unless `with_places`: a role needs the right to read it. Line breaks end comments.
        """
        if self.where is None and self.query is None:
            return f"{self.sql_name} AS t{sample}"
        rows = f"{self.sql_name}{sample}" if self.query is None else f"(\n{self.query}\n) AS t"
        if self.where is None:
            return rows
        names = dict.fromkeys((*dict(self.keys), *dict(self.columns), *self.primary_key))
        places = ("tableoid", "ctid") if with_places and self.has_row_places else ()
        columns = ", ".join((*places, *map(quoted, names)))
        return f"(SELECT {columns} FROM {rows} WHERE (\n{self.where}\n)) AS t"  # noqa: S608  of the configuration

    @property
    def schema(self) -> DimensionSchema:
        """The schema of the dimension."""
        return DimensionSchema(
            key=pa.schema([sending.field for _, sending in self.keys]),
            columns=pa.schema([pa.field(name, reading.type) for name, reading in self.columns]),
            origin=None if self.query is not None else self._origin,
        )

    @property
    def _origin(self) -> TableOrigin:
        return TableOrigin(
            self.schema_name,
            self.name,
            table_id=self.table_id,
            reports_rows=self.reports_rows,
            has_full_identity=self.has_full_identity,
            loses_keys=self.loses_keys,
            is_partitioned=self.kind is RelationKind.PARTITIONED,
            has_row_order=bool(self.primary_key),
            database=self.database,
            is_subscribed=self.is_subscribed,
            version=self.version,
        )

    @property
    def order(self) -> tuple[str, ...]:
        """SQL terms that sort its rows `t` in the same order at each query."""
        if self.primary_key:
            return tuple(f"t.{quoted(name)}" for name in self.primary_key)
        if self.has_row_places:  # an update changes it
            is_partitioned = self.kind is RelationKind.PARTITIONED
            return ("t.tableoid", "t.ctid") if is_partitioned else ("t.ctid",)
        # Rows with equal texts are the same to lookups. Types without an order have texts, too.
        return tuple(f't.{quoted(name)}::text COLLATE "C"' for name, _ in self.columns)

    @property
    def conditions(self) -> tuple[str, ...]:
        """SQL conditions of its rows `t`, which exclude versions that are never valid.

        A validity bound beyond the calendar reads as NULL, which means unbounded. That is wrong
        for a version that begins at `infinity` or ended at `-infinity`.
        """
        terms, readings = [], dict(self.columns)
        names = () if self.versions is None else self.versions.names
        for name, sign in zip(names, "><", strict=False):
            if name in readings and is_moment(readings[name].type):
                column = f"t.{quoted(name)}"
                value = readings[name].expression(column)
                terms.append(f"({value} IS NULL AND {column} {sign} 'epoch') IS NOT TRUE")
        return tuple(terms)


# A CTE `meaning` of one row, for the relation {root} and the objects {more}; any role may read it.
# It needs RECURSIVE.
#
# Objects of the system have fixed ids below 16384, and change with the server's version only.
# Columns are listed where a row of the catalog has more: GRANT and ANALYZE change no meaning.
# All columns of a table below a view count: the view may return whole rows, as to_jsonb(t) does.
# `LATERAL` leads to index scans by the ids found, however many objects the database has.
MEANING = """
object AS (
    SELECT 'pg_catalog.pg_class'::regclass::oid AS class, {root}::oid AS id
    {more}
    UNION
    SELECT n.class, n.id FROM object o CROSS JOIN LATERAL (
        SELECT d.refclassid AS class, d.refobjid AS id FROM (
            SELECT o.class, o.id
            UNION ALL
            SELECT 'pg_catalog.pg_rewrite'::regclass, w.oid FROM pg_catalog.pg_rewrite w
            WHERE o.class = 'pg_catalog.pg_class'::regclass AND w.ev_class = o.id
                  AND w.ev_type = '1'
        ) AS c JOIN pg_catalog.pg_depend d ON d.classid = c.class AND d.objid = c.id
        WHERE d.refclassid IN (
            'pg_catalog.pg_class'::regclass, 'pg_catalog.pg_type'::regclass,
            'pg_catalog.pg_proc'::regclass, 'pg_catalog.pg_operator'::regclass,
            'pg_catalog.pg_ts_config'::regclass, 'pg_catalog.pg_ts_dict'::regclass)
        UNION ALL
        -- depends on the type, instead of the reverse
        SELECT 'pg_catalog.pg_class'::regclass, t.typrelid FROM pg_catalog.pg_type t
        WHERE o.class = 'pg_catalog.pg_type'::regclass AND t.oid = o.id AND t.typtype = 'c'
        UNION ALL
        -- foreign partitions
        SELECT 'pg_catalog.pg_class'::regclass, h.inhrelid FROM pg_catalog.pg_inherits h
        JOIN pg_catalog.pg_class c ON c.oid = h.inhrelid AND c.relkind IN ('f', 'p')
        WHERE o.class = 'pg_catalog.pg_class'::regclass AND h.inhparent = o.id
        UNION ALL
        -- to_json, to_jsonb and texts use it
        SELECT 'pg_catalog.pg_proc'::regclass, k.castfunc FROM pg_catalog.pg_cast k
        WHERE o.class = 'pg_catalog.pg_type'::regclass AND k.castsource = o.id
              AND k.casttarget IN ('pg_catalog.json'::regtype, 'pg_catalog.text'::regtype)
    ) AS n
    WHERE n.id >= 16384
), meaning AS MATERIALIZED (
    SELECT pg_catalog.md5(pg_catalog.concat_ws(
        ' ', pg_catalog.string_agg(m.text, ',' ORDER BY o.class, o.id),
        -- of later sessions; fixed ones, and those of plans, change no row
        (SELECT pg_catalog.string_agg(e.setting, ',' ORDER BY v.setrole, v.setdatabase, e.setting)
         FROM pg_catalog.pg_db_role_setting v
         CROSS JOIN pg_catalog.unnest(v.setconfig) AS e (setting)
         LEFT JOIN pg_catalog.pg_roles r ON r.oid = v.setrole
         LEFT JOIN pg_catalog.pg_database d ON d.oid = v.setdatabase
         WHERE (v.setrole = 0 OR r.rolname = session_user)
         AND (v.setdatabase = 0 OR d.datname = pg_catalog.current_database())
         AND (pg_catalog.split_part(e.setting, '=', 1) LIKE '%.%'  -- of SQL of the user
              OR pg_catalog.split_part(e.setting, '=', 1) IN (
                  'role', 'lc_monetary', 'lc_numeric', 'lc_time', 'search_path',
                  'default_text_search_config', 'timezone_abbreviations'))
        ))) AS digest
    FROM object o CROSS JOIN LATERAL (
        SELECT pg_catalog.concat_ws(
            ' ', c.oid, c.relrowsecurity, c.relforcerowsecurity,
            pg_catalog.row_security_active(c.oid),
            -- policies do not concern the owner of a table; a view reads with the rights of its own
            CASE WHEN c.relrowsecurity OR c.relkind = 'v' THEN
                (SELECT pg_catalog.concat_ws(' ', r.oid, r.rolsuper OR r.rolbypassrls)
                 FROM pg_catalog.pg_roles r WHERE r.oid = c.relowner) END,
            CASE WHEN c.relkind = 'f' THEN
                (SELECT pg_catalog.concat_ws(
                     ' ', f.ftoptions, s.oid, s.srvoptions, w.fdwoptions, w.fdwhandler,
                     -- the password is left out: its rotation changes no row
                     ARRAY(SELECT pg_catalog.concat_ws(
                               ' ', u.umid, (SELECT x FROM pg_catalog.unnest(u.umoptions) AS x
                                             WHERE x LIKE 'user=%'))
                           FROM pg_catalog.pg_user_mappings u
                           WHERE u.srvid = s.oid AND (u.umuser = 0 OR u.usename = current_user
                                 OR u.umuser IN (SELECT v.relowner FROM pg_catalog.pg_class v
                                                 JOIN object ON v.oid = object.id))
                           ORDER BY u.umid)::text)
                 FROM pg_catalog.pg_foreign_table f
                 JOIN pg_catalog.pg_foreign_server s ON s.oid = f.ftserver
                 JOIN pg_catalog.pg_foreign_data_wrapper w ON w.oid = s.srvfdw
                 WHERE f.ftrelid = c.oid) END,
            CASE WHEN c.relkind = 'v' THEN c.reloptions END,
            CASE WHEN c.oid = {root}::oid THEN pg_catalog.concat_ws(
                ' ', c.relreplident, c.relpersistence,
                ARRAY(SELECT i.indexrelid FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid
                      AND (i.indisprimary OR i.indisreplident) ORDER BY 1)::text,
                ARRAY(SELECT h.inhrelid FROM pg_catalog.pg_inherits h
                      WHERE c.relkind = 'r' AND h.inhparent = c.oid ORDER BY 1)::text,
                ARRAY(SELECT h.inhparent FROM pg_catalog.pg_inherits h
                      WHERE h.inhrelid = c.oid ORDER BY 1)::text) END,
            ARRAY(SELECT p::text FROM pg_catalog.pg_policy p
                  WHERE c.relrowsecurity AND p.polrelid = c.oid ORDER BY 1)::text,
            ARRAY(SELECT w.xmin FROM pg_catalog.pg_rewrite w
                  WHERE w.ev_class = c.oid AND w.ev_type = '1')::text,
            ARRAY(SELECT pg_catalog.concat_ws(
                      ' ', a.attnum, a.attname, a.atttypid, a.atttypmod, a.attcollation,
                      a.attnotnull, a.atthasdef, a.attgenerated, a.attfdwoptions,
                      CASE WHEN a.attgenerated = 'v' THEN f.oid END)
                  FROM pg_catalog.pg_attribute a LEFT JOIN pg_catalog.pg_attrdef f
                  ON f.adrelid = a.attrelid AND f.adnum = a.attnum
                  WHERE a.attrelid = c.oid AND a.attnum > 0 ORDER BY a.attnum)::text) AS text
        FROM pg_catalog.pg_class c
        WHERE o.class = 'pg_catalog.pg_class'::regclass AND c.oid = o.id
        UNION ALL
        SELECT pg_catalog.concat_ws(
            ' ', t.oid, t.typtype, t.typbasetype, t.typtypmod, t.typcollation,
            ARRAY(SELECT e.enumlabel FROM pg_catalog.pg_enum e
                  WHERE t.typtype = 'e' AND e.enumtypid = t.oid ORDER BY e.enumsortorder)::text)
        FROM pg_catalog.pg_type t
        WHERE o.class = 'pg_catalog.pg_type'::regclass AND t.oid = o.id
        UNION ALL
        SELECT pg_catalog.concat_ws(' ', pg_catalog.to_jsonb(p) - 'proacl', g)
        FROM pg_catalog.pg_proc p LEFT JOIN pg_catalog.pg_aggregate g ON g.aggfnoid = p.oid
        WHERE o.class = 'pg_catalog.pg_proc'::regclass AND p.oid = o.id
        UNION ALL
        SELECT pg_catalog.concat_ws(' ', o.id, r.oprcode) FROM pg_catalog.pg_operator r
        WHERE o.class = 'pg_catalog.pg_operator'::regclass AND r.oid = o.id
        UNION ALL
        SELECT ARRAY(SELECT m::text FROM pg_catalog.pg_ts_config_map m
                     WHERE m.mapcfg = o.id ORDER BY 1)::text
        WHERE o.class = 'pg_catalog.pg_ts_config'::regclass
        UNION ALL
        SELECT pg_catalog.concat_ws(' ', o.id, y.dicttemplate, y.dictinitoption)
        FROM pg_catalog.pg_ts_dict y
        WHERE o.class = 'pg_catalog.pg_ts_dict'::regclass AND y.oid = o.id
    ) AS m
)
"""

# The version of the table, and a row for each trigger with its version; without triggers, one row.
# No row if the table is gone. Any role may read it.
#
# ALTER TABLE changes rows without a report: it writes another file, or changes their meaning.
# Attached and detached partitions change rows, too; so does TRUNCATE of one, which gets another
# file. VACUUM FULL and CLUSTER also write another file: rows are read again once.
#
# Under another name for a moment, changes of the table were not in its changelog. The row type has
# the same name, and another xmin after each change of name or owner, unlike the table only then.
#
# `fault` is why a trigger does not report each change of a table or a partition, as the script's
# would. 'A' is ENABLE ALWAYS: after a plain ENABLE, sessions with `session_replication_role =
# replica` skip the trigger. White space of the function has no effect. DISABLE, ENABLE and another
# function change an xmin, also when both happen between two checks, as around a bulk load.
#
# Unreported changes are of the last transaction of the snapshot, or of earlier ones.
_WITHOUT_SPACE = "pg_catalog.regexp_replace({}, '[[:space:]]+', ' ', 'g')"
TABLE_VERSION = f"""
WITH RECURSIVE {MEANING.format(root="$1", more="")}, part AS (
    SELECT c.oid, c.relkind, c.relfilenode, c.relreplident, '0' AS attached, true AS is_root,
           (SELECT y.xmin FROM pg_catalog.pg_type y WHERE y.oid = c.reltype) AS named
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE c.oid = $1::oid AND n.nspname = $2 AND c.relname = $3
    UNION ALL
    SELECT c.oid, c.relkind, c.relfilenode, c.relreplident, i.xmin::text, false, NULL
    FROM part
    JOIN pg_catalog.pg_inherits i ON part.relkind = 'p' AND i.inhparent = part.oid
    JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
)
SELECT w.name,
       (pg_catalog.array_agg(f.fault || ' on ' || part.oid::regclass::text
                             ORDER BY part.is_root DESC, part.oid)
        FILTER (WHERE f.fault IS NOT NULL))[1] AS fault,
       pg_catalog.md5(pg_catalog.string_agg(pg_catalog.concat_ws(
           ' ', part.oid, part.relfilenode, part.relreplident, part.attached, part.named,
           g.oid, g.xmin, p.xmin, CASE WHEN part.is_root THEN meaning.digest END
       ), ',' ORDER BY part.oid)) AS version,
       pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::text::bigint - 1
       AS last_transaction_id
FROM part CROSS JOIN meaning
LEFT JOIN ROWS FROM (pg_catalog.unnest($6::text[]), pg_catalog.unnest($7::int[])) AS w (name, type)
       ON part.is_root OR w.type <> {TRUNCATE_TYPE}
LEFT JOIN pg_catalog.pg_trigger g ON g.tgrelid = part.oid AND g.tgname = w.name
LEFT JOIN pg_catalog.pg_proc p ON p.oid = g.tgfoid
CROSS JOIN LATERAL (SELECT CASE
    WHEN w.name IS NULL THEN NULL
    WHEN g.oid IS NULL THEN 'missing'
    WHEN g.tgenabled = 'D' THEN 'disabled'
    WHEN g.tgenabled <> 'A' THEN 'not ENABLE ALWAYS'
    WHEN g.tgtype <> w.type OR g.tgqual IS NOT NULL OR g.tgattr::text <> ''
    THEN 'restricted'
    WHEN p.proname <> $4 THEN 'with another function'
    WHEN p.prosrc <> $5 AND {_WITHOUT_SPACE.format("p.prosrc")} <> {_WITHOUT_SPACE.format("$5")}
         OR (p.proconfig @> $8::text[]) IS NOT TRUE
    THEN 'whose function is altered'
END) AS f (fault)
GROUP BY w.name
"""  # noqa: S608  constants
