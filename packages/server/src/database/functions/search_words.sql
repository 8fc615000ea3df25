-- The words of a text, each behind the hash of whose it is, so that a search reads the words of one owner alone.
CREATE FUNCTION runtime.search_words(org text, owner text, body text) RETURNS tsvector
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT coalesce(array_to_tsvector(array_agg(DISTINCT
    left(md5(org || ' ' || owner), 12) || ':' || left(translate(lexeme, E'\\', ''), 64))), '')
  FROM unnest(to_tsvector('simple'::regconfig, left(body, 20000)))
$$;
