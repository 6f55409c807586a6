-- Names are qualified: a schema in the search path could shadow them. $1 alone uses the path.
WITH RECURSIVE named AS (
    -- Behind a pooler, temporary tables of other clients would come first.
    SELECT CASE WHEN c.relpersistence <> 't' THEN c.oid ELSE (
        SELECT o.oid FROM pg_catalog.unnest(pg_catalog.current_schemas(false))
                          WITH ORDINALITY AS p (name, at)
        JOIN pg_catalog.pg_namespace n ON n.nspname = p.name
        JOIN pg_catalog.pg_class o ON o.relnamespace = n.oid AND o.relname = c.relname
        ORDER BY p.at LIMIT 1) END AS id
    FROM pg_catalog.pg_class c WHERE c.oid = pg_catalog.to_regclass($1)
), part AS (
    SELECT id FROM named
    UNION ALL
    SELECT i.inhrelid FROM part JOIN pg_catalog.pg_class w ON w.oid = part.id AND w.relkind = 'p'
    JOIN pg_catalog.pg_inherits i ON i.inhparent = part.id
), leaf AS (
    SELECT f.* FROM part JOIN pg_catalog.pg_class f ON f.oid = part.id AND f.relkind <> 'p'
)
SELECT c.oid,
       pg_catalog.current_database() AS database,
       EXISTS (SELECT FROM pg_catalog.pg_subscription_rel s
               WHERE s.srrelid = c.oid OR s.srrelid IN (
                   SELECT p.relid FROM pg_catalog.pg_partition_tree(c.oid) p)) AS is_subscribed,
       c.relkind::text AS kind, n.nspname AS schema_name, c.relname AS table_name,
       pg_catalog.row_security_active(c.oid) AS has_row_security,
       -- partitions do not inherit the replica identity
       (SELECT pg_catalog.bool_and(f.relreplident = 'f') IS TRUE FROM leaf f) AS has_full_identity,
       ARRAY(SELECT a.attname::text FROM leaf f
             JOIN pg_catalog.pg_attribute a ON a.attrelid = f.oid AND a.attnum > 0
             LEFT JOIN pg_catalog.pg_index i ON i.indrelid = f.oid AND CASE f.relreplident
                 WHEN 'd' THEN i.indisprimary AND i.indimmediate
                 WHEN 'i' THEN i.indisreplident END
             -- The log has NULL for a column that was added with a default after the row.
             WHERE f.relreplident = 'f' AND NOT a.atthasmissing
                   OR a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1])
             GROUP BY a.attname HAVING pg_catalog.count(*) = (SELECT pg_catalog.count(*) FROM leaf)
       ) AS identity,
       c.relispopulated AS is_populated,
       (SELECT pg_catalog.min(f.oid::regclass::text) FROM leaf f
        WHERE f.relkind = 'f' AND f.oid <> c.oid) AS foreign_part,
       (SELECT pg_catalog.format('%I.%I', cn.nspname, h.relname)
        FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class h ON h.oid = i.inhrelid
        JOIN pg_catalog.pg_namespace cn ON cn.oid = h.relnamespace
        -- rows of a temporary child are visible to its own session only
        WHERE i.inhparent = c.oid AND h.relpersistence <> 't' ORDER BY 1 LIMIT 1) AS child,
       (SELECT pg_catalog.format('%I.%I', pn.nspname, p.relname)
        FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class p ON p.oid = i.inhparent
        JOIN pg_catalog.pg_namespace pn ON pn.oid = p.relnamespace
        WHERE i.inhrelid = c.oid ORDER BY 1 LIMIT 1) AS parent,
       ARRAY(SELECT pg_catalog.unnest(i.indkey[0:i.indnkeyatts - 1])
             FROM pg_catalog.pg_index i
             WHERE i.indrelid = c.oid AND i.indisprimary) AS primary_key,
       EXISTS (SELECT FROM pg_catalog.pg_index i
               WHERE i.indrelid = c.oid AND i.indisprimary AND i.indimmediate) AS has_immediate_key,
       -- NOT NULL NOT VALID, from version 18
       EXISTS (SELECT FROM pg_catalog.pg_constraint k WHERE k.conrelid = c.oid
               AND k.contype = 'n' AND NOT k.convalidated) AS has_unchecked_columns,
       pg_catalog.getdatabaseencoding() <> 'SQL_ASCII' AS has_exact_texts,
       -- The changelog connector's session has the settings of its own role, which may replicate.
       -- `reset_val` has no change by this session.
       ARRAY(SELECT s.name FROM pg_catalog.pg_settings s
             WHERE s.name = 'extra_float_digits' AND s.reset_val::int < 1
                OR s.name = 'bytea_output' AND s.reset_val <> 'hex'
             UNION
             SELECT pg_catalog.split_part(e.setting, '=', 1)
             FROM pg_catalog.pg_db_role_setting s
             CROSS JOIN pg_catalog.unnest(s.setconfig) AS e (setting)
             LEFT JOIN pg_catalog.pg_roles r ON r.oid = s.setrole
             WHERE s.setdatabase IN (0, (SELECT d.oid FROM pg_catalog.pg_database d
                                         WHERE d.datname = pg_catalog.current_database()))
             AND (s.setrole = 0 OR r.rolreplication OR r.rolsuper
                  -- the right of replication at Amazon RDS
                  OR EXISTS (SELECT FROM pg_catalog.pg_roles g WHERE g.rolname = 'rds_replication'
                             AND pg_catalog.pg_has_role(r.oid, g.oid, 'MEMBER')))
             AND (e.setting ~ '^extra_float_digits=(0|-)'
                  OR e.setting ~ '^bytea_output=' AND e.setting <> 'bytea_output=hex')
       ) AS inexact_settings
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = (SELECT id FROM named)
