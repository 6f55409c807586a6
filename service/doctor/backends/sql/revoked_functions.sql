-- A function that the server lacks is not revoked.
SELECT ARRAY(SELECT f.name FROM pg_catalog.unnest($1::text[]) AS f (name)
WHERE NOT pg_catalog.has_function_privilege(
    pg_catalog.to_regprocedure('pg_catalog.' || f.name), 'EXECUTE')) AS revoked_functions
