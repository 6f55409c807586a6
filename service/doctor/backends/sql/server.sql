-- Columns have the names of fields of PostgresServer. Functions that a server may refuse are in
-- statements of their own.
SELECT pg_catalog.current_setting('server_version_num')::int AS version,
       pg_catalog.current_setting('server_version') AS version_text,
       current_user::text AS role, pg_catalog.current_database()::text AS database,
       pg_catalog.pg_backend_pid() AS process,
       pg_catalog.current_setting('port') AS port,
       pg_catalog.current_setting('statement_timeout') <> '0' AS has_statement_timeout,
       pg_catalog.current_setting('max_connections')::int AS max_connections,
       pg_catalog.current_setting('superuser_reserved_connections')::int
       + coalesce(pg_catalog.current_setting('reserved_connections', true), '0')::int AS reserved,
       r.rolsuper AS is_superuser, r.rolbypassrls AS bypasses_policies,
       nullif(r.rolconnlimit, -1) AS role_limit, nullif(d.datconnlimit, -1) AS database_limit,
       pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) AS clock_s
FROM pg_catalog.pg_roles r
CROSS JOIN pg_catalog.pg_database d
WHERE r.rolname = current_user AND d.datname = pg_catalog.current_database()
