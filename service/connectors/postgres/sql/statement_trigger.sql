DECLARE
    head CONSTANT text := '{"v":1,"x":"' || pg_current_xact_id()::text || '",';
    keys text[];
BEGIN
    BEGIN
        CASE TG_OP
            WHEN 'INSERT' THEN
                keys := ARRAY(
                    $new
                    LIMIT $most + 1);
            WHEN 'DELETE' THEN
                keys := ARRAY(
                    $old
                    LIMIT $most + 1);
            WHEN 'UPDATE' THEN
                keys := ARRAY(
                    $old
                    UNION ALL
                    $new
                    LIMIT $most + 1);
            ELSE keys := NULL;
        END CASE;
    EXCEPTION WHEN undefined_column THEN
        keys := NULL;
    END;
    IF keys IS NULL OR cardinality(keys) > $most
        OR EXISTS (SELECT FROM unnest(keys) AS each(key) WHERE octet_length(key) > $key_bytes)
    THEN
        PERFORM pg_notify($channel, head || '"all":true}');
        RETURN NULL;
    END IF;
    PERFORM pg_notify($channel, head || '"k":[' || string_agg(key, ',') || ']}')
    FROM (
        SELECT key, sum(octet_length(key) + 1) OVER (ROWS UNBOUNDED PRECEDING) / $piece AS piece
        FROM (SELECT DISTINCT key FROM unnest(keys) AS each(key)) AS different
    ) AS placed
    GROUP BY piece;
    RETURN NULL;
END
