-- The role may not be allowed to use the schema of the relation.
SELECT pg_catalog.format('%I.%I', n.nspname, c.relname) AS name,
       pg_catalog.quote_ident(n.nspname) AS schema_name, c.relkind = 'v' AS is_view,
       pg_catalog.has_schema_privilege(n.oid, 'USAGE') AS may_use_schema,
       string_agg(pg_catalog.quote_ident(a.attname), ', ' ORDER BY a.attnum)
       FILTER (WHERE NOT r.may_be_read AND a.attname = ANY (coalesce($2, ARRAY[a.attname::text])))
       AS hidden, bool_or(r.may_be_read) AS has_readable_columns
FROM pg_catalog.parse_ident($1) AS p (parts)
JOIN pg_catalog.pg_class c ON c.relname = p.parts[pg_catalog.cardinality(p.parts)]
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
     AND coalesce(n.nspname = p.parts[pg_catalog.cardinality(p.parts) - 1],
                  pg_catalog.pg_table_is_visible(c.oid))
JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
CROSS JOIN LATERAL (SELECT pg_catalog.has_column_privilege(c.oid, a.attnum, 'SELECT')
                           AS may_be_read) AS r
GROUP BY c.oid, c.relname, c.relkind, n.oid, n.nspname
