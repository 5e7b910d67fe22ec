-- A health check inserts a row here and deletes it in the same transaction.
CREATE TABLE probes (
    body BLOB NOT NULL
) STRICT;
