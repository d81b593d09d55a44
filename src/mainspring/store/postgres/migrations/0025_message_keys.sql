-- What a run that begins anew may forget of its messages, without reading the keys that are all that is left of older ones.
CREATE INDEX messages_over ON messages (run) WHERE position IS NOT NULL OR answered IS NOT NULL;
