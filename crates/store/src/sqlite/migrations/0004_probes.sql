-- What is written, and taken away in the same step, to see whether anything can be written.
CREATE TABLE probes (
    body BLOB NOT NULL
) STRICT;
