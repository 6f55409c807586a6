-- A domain is resolved to its base type, with the innermost modifier, and an array to its elements.
WITH RECURSIVE layer AS (
    SELECT a.attnum, a.attname, a.atttypid AS type_id, a.atttypmod AS modifier, 0 AS depth,
           false AS is_array, false AS is_domain
    FROM pg_catalog.pg_attribute a
    WHERE a.attrelid = $1::oid AND a.attnum > 0 AND NOT a.attisdropped
    UNION ALL
    SELECT l.attnum, l.attname, coalesce(e.oid, t.typbasetype),
           CASE WHEN t.typtypmod >= 0 THEN t.typtypmod ELSE l.modifier END, l.depth + 1,
           l.is_array OR e.oid IS NOT NULL, l.is_domain OR t.typtype = 'd'
    FROM layer l JOIN pg_catalog.pg_type t ON t.oid = l.type_id
    LEFT JOIN pg_catalog.pg_type e ON e.oid = t.typelem AND e.typarray = t.oid AND NOT l.is_array
    WHERE t.typtype = 'd' OR e.oid IS NOT NULL
)
SELECT DISTINCT ON (l.attnum) l.attnum AS number, l.attname AS name, l.modifier,
       t.typname AS type_name, n.nspname AS type_schema, n.nspname = 'pg_catalog' AS is_builtin,
       coalesce(o.collisdeterministic, true) AS has_exact_equality,
       l.is_domain, l.is_array, t.typtype = 'e' AS is_enum,
       EXISTS (SELECT FROM pg_catalog.pg_cast k WHERE k.castsource = t.oid
               AND k.casttarget = 'pg_catalog.json'::regtype) AS has_json_cast,
       -- of a composite type, and of those within: paths, each with a mark of JSON documents
       (WITH RECURSIVE attribute AS (
            SELECT ARRAY[]::name[] AS path, t.oid AS type_id
            UNION ALL
            SELECT a.path || n.names, n.type_id
            FROM attribute a JOIN pg_catalog.pg_type y ON y.oid = a.type_id CROSS JOIN LATERAL (
                SELECT ARRAY[x.attname] AS names, x.atttypid AS type_id
                FROM pg_catalog.pg_attribute x
                WHERE y.typtype = 'c' AND x.attrelid = y.typrelid AND x.attnum > 0
                      AND NOT x.attisdropped
                UNION ALL
                SELECT '{}', CASE y.typtype WHEN 'd' THEN y.typbasetype ELSE y.typelem END
                WHERE y.typtype = 'd' OR y.typcategory = 'A'
            ) n
        )
        SELECT pg_catalog.json_agg(a.path || (y.typname IN ('json', 'jsonb'))::text::name
                                   ORDER BY pg_catalog.cardinality(a.path), a.path)::text
        FROM attribute a JOIN pg_catalog.pg_type y ON y.oid = a.type_id
        WHERE a.path <> '{}' AND y.typtype <> 'd' AND y.typcategory <> 'A') AS attributes,
       NOT a.attnotnull AS may_be_null, a.atthasdef AS has_default,
       a.attgenerated <> '' AS is_generated, a.attgenerated = 'v' AS is_virtual,
       -- not known for a query, which was refused if it may not be read
       coalesce(pg_catalog.has_column_privilege($1::oid, l.attnum, 'SELECT'), true) AS may_be_read
FROM layer l JOIN pg_catalog.pg_type t ON t.oid = l.type_id
JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
JOIN pg_catalog.pg_attribute a ON a.attrelid = $1::oid AND a.attnum = l.attnum
LEFT JOIN pg_catalog.pg_collation o ON o.oid = a.attcollation
ORDER BY l.attnum, l.depth DESC
