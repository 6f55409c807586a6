-- Of $1 and its partitions: bytes with and without long values; bytes of a block; estimated rows;
-- whether each has an index that finds ranges of the column $2.
WITH RECURSIVE part AS (
    SELECT $1::oid AS oid
    UNION ALL SELECT i.inhrelid FROM part JOIN pg_catalog.pg_inherits i ON i.inhparent = part.oid
)
SELECT pg_catalog.sum(pg_catalog.pg_table_size(c.oid))::int8 AS table_bytes,
       pg_catalog.sum(pg_catalog.pg_relation_size(c.oid))::int8 AS main_bytes,
       pg_catalog.current_setting('block_size')::int AS block_bytes,
       pg_catalog.sum(c.reltuples) FILTER (WHERE c.relkind <> 'p') AS row_count,
       pg_catalog.bool_and(EXISTS (
           SELECT FROM pg_catalog.pg_index i
           JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
           -- of the same order as the operators of its type
           JOIN pg_catalog.pg_opclass o ON o.oid = i.indclass[0]
           JOIN pg_catalog.pg_opclass d ON d.opcfamily = o.opcfamily AND d.opcdefault
           JOIN pg_catalog.pg_am m ON m.oid = o.opcmethod AND m.amname = 'btree'
           WHERE i.indrelid = c.oid AND i.indisvalid AND i.indpred IS NULL AND a.attname = $2
           AND i.indcollation[0] = a.attcollation)) FILTER (WHERE c.relkind <> 'p') AS has_index
FROM part JOIN pg_catalog.pg_class c ON c.oid = part.oid
