-- The calls of agents to other agents.
CREATE TABLE calls (
    id       TEXT    PRIMARY KEY,
    task     INTEGER NOT NULL REFERENCES tasks (ordinal) ON DELETE CASCADE,
    owner    TEXT    NOT NULL,
    -- 0: the call has ended.
    open     INTEGER NOT NULL CHECK (open IN (0, 1)),
    at       INTEGER NOT NULL,
    -- JSON, for the code that calls.
    record   TEXT    NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX calls_of_task ON calls (task);
CREATE INDEX calls_open ON calls (id) WHERE open = 1;
