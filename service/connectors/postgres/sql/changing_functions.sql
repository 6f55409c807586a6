SELECT DISTINCT p.proname AS name FROM pg_catalog.pg_proc p
WHERE p.provolatile <> 'i' AND (p.proname = ANY ($1::text[]) OR
    -- a function of a row can be called like a column
    p.proname = ANY ($2::text[]) AND p.proargtypes[0] =
    (SELECT c.reltype FROM pg_catalog.pg_class c WHERE c.oid = $3::oid)) ORDER BY 1
