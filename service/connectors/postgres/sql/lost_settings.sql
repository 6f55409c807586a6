-- Which of the settings $1 do not have the values $2; a custom one may have another form of it.
SELECT w.name FROM ROWS FROM (pg_catalog.unnest($1::text[]), pg_catalog.unnest($2::text[]))
               AS w (name, value)
WHERE CASE WHEN w.name LIKE '%.%' THEN pg_catalog.current_setting(w.name, true) IS NULL
      ELSE pg_catalog.current_setting(w.name) NOT IN
           (w.value, pg_catalog.concat('pg_catalog, ', w.value)) END ORDER BY w.name
