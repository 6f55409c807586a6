-- What the publications of a table depend on, whatever its entry is; quick, unlike that view.
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
