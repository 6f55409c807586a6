-- The value of `search_path` that is needed, if a schema before `pg_catalog` replaces an operator or
-- a type of it. Operators are qualified until `pg_catalog` comes first.
SELECT 'search_path', pg_catalog.current_setting('search_path'),
       pg_catalog.concat('pg_catalog, ', pg_catalog.regexp_replace(
           pg_catalog.current_setting('search_path'), '^ *$', '""'))
WHERE EXISTS (
    SELECT FROM pg_catalog.unnest(pg_catalog.current_schemas(false)) WITH ORDINALITY AS p (name, at)
    JOIN pg_catalog.pg_namespace n ON n.nspname OPERATOR(pg_catalog.=) p.name
    WHERE p.at OPERATOR(pg_catalog.<)
        pg_catalog.array_position(pg_catalog.current_schemas(false), 'pg_catalog')
    AND (
        EXISTS (
            SELECT FROM pg_catalog.pg_operator o JOIN pg_catalog.pg_operator c
            ON o.oprname OPERATOR(pg_catalog.=) c.oprname
            AND o.oprleft OPERATOR(pg_catalog.=) c.oprleft
            AND o.oprright OPERATOR(pg_catalog.=) c.oprright
            WHERE o.oprnamespace OPERATOR(pg_catalog.=) n.oid
            AND c.oprnamespace OPERATOR(pg_catalog.=) 'pg_catalog'::pg_catalog.regnamespace
        ) OR EXISTS (
            SELECT FROM pg_catalog.pg_type o JOIN pg_catalog.pg_type c
            ON o.typname OPERATOR(pg_catalog.=) c.typname
            WHERE o.typnamespace OPERATOR(pg_catalog.=) n.oid
            AND c.typnamespace OPERATOR(pg_catalog.=) 'pg_catalog'::pg_catalog.regnamespace
        )
    )
)
