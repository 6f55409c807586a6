-- The version of the table, and a row for each trigger with its version; without triggers, one row.
-- No row if the table is gone. Any role may read it.
--
-- ALTER TABLE changes rows without a report: it writes another file, or changes their meaning.
-- Attached and detached partitions change rows, too; so does TRUNCATE of one, which gets another
-- file. VACUUM FULL and CLUSTER also write another file: rows are read again once.
--
-- Under another name for a moment, changes of the table were not in its changelog. The row type has
-- the same name, and another xmin after each change of name or owner, unlike the table only then.
--
-- `fault` is why a trigger does not report each change of a table or a partition, as the script's
-- would. 'A' is ENABLE ALWAYS: after a plain ENABLE, sessions with `session_replication_role =
-- replica` skip the trigger. White space of the function has no effect. DISABLE, ENABLE and another
-- function change an xmin, also when both happen between two checks, as around a bulk load.
--
-- Unreported changes are of the last transaction of the snapshot, or of earlier ones.
WITH RECURSIVE /* meaning */, part AS (
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
       ON part.is_root OR w.type <> 32  -- TRUNCATE
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
    WHEN p.prosrc <> $5 AND pg_catalog.regexp_replace(p.prosrc, '[[:space:]]+', ' ', 'g') <>
            pg_catalog.regexp_replace($5, '[[:space:]]+', ' ', 'g')
         OR (p.proconfig @> $8::text[]) IS NOT TRUE
    THEN 'whose function is altered'
END) AS f (fault)
GROUP BY w.name
