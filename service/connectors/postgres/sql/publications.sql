-- The table, with each publication that counts, and its entry there; without one, a row of NULLs.
-- Versions before 15 have neither filters nor column lists.
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
