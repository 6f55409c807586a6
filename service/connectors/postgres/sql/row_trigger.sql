DECLARE
    changes int := coalesce(nullif(current_setting('$setting', true), ''), '0')::int + 1;
    counted text;
    head text;
    old_key text;
    new_key text;
    is_known bool := TG_OP <> 'TRUNCATE' AND changes <= $most;
BEGIN
    IF TG_OP <> 'TRUNCATE' AND changes > $most + 1 THEN
        RETURN NULL;
    END IF;
    counted := set_config('$setting', changes::text, true);
    head := '{"v":1,"x":"' || pg_current_xact_id()::text || '",';
    IF is_known THEN
        BEGIN
            IF TG_OP <> 'INSERT' THEN
                old_key := $old;
            END IF;
            IF TG_OP <> 'DELETE' THEN
                new_key := $new;
            END IF;
        EXCEPTION WHEN undefined_column THEN
            is_known := false;
        END;
    END IF;
    IF NOT is_known OR greatest(octet_length(old_key), octet_length(new_key)) > $key_bytes THEN
        PERFORM pg_notify($channel, head || '"all":true}');
        RETURN NULL;
    END IF;
    IF old_key IS NOT NULL THEN
        PERFORM pg_notify($channel, head || '"k":[' || old_key || ']}');
    END IF;
    IF new_key <> coalesce(old_key, '') THEN
        PERFORM pg_notify($channel, head || '"k":[' || new_key || ']}');
    END IF;
    RETURN NULL;
END
