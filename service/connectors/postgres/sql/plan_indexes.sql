SELECT i.indrelid AS table_id, c.relname AS name,
       CASE WHEN m.amname IN ('gin', 'brin', 'bloom') THEN '{}'
       ELSE ARRAY(SELECT pg_catalog.pg_get_indexdef(i.indexrelid, n, false)
                  FROM pg_catalog.generate_series(1, i.indnkeyatts) n) END AS columns,
       i.indisvalid AND i.indpred IS NULL AND m.amname IN ('btree', 'hash') AS is_general
FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_index i ON i.indexrelid = l.relation
JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid JOIN pg_catalog.pg_am m ON m.oid = c.relam
WHERE l.pid = pg_catalog.pg_backend_pid() AND l.locktype = 'relation'
