-- Push notifications. The log of the task is the queue of each configuration.
CREATE TABLE push_configs (
    ordinal  INTEGER PRIMARY KEY,
    task     INTEGER NOT NULL REFERENCES tasks (ordinal) ON DELETE CASCADE,
    id       TEXT    NOT NULL,
    owner    TEXT    NOT NULL,
    format   TEXT    NOT NULL,
    -- Words, separated by commas.
    events   TEXT    NOT NULL,
    view     TEXT    NOT NULL,
    -- The `traceparent` of the request that registered the configuration.
    trace    TEXT,
    -- URL, token and credentials: encrypted.
    sealed   BLOB    NOT NULL,
    created  INTEGER NOT NULL,
    -- The last event that needs no call any more.
    cursor   INTEGER NOT NULL,
    -- Since when there may be events after the cursor. NULL: there are none, or the holder of the lease looks for them.
    grown_at INTEGER,
    -- When the configuration can be leased: its events wait, its pause ends, or its lease expires. NULL: nothing is to be done.
    due_at   INTEGER,
    -- The number of the lease. NULL: there is none.
    lease    INTEGER,
    -- The dead letter that the lease replays.
    replays  INTEGER,
    attempts INTEGER NOT NULL DEFAULT 0,
    first_failed_at INTEGER,
    -- 0: the task has ended, and everything is delivered.
    active   INTEGER NOT NULL CHECK (active IN (0, 1)),
    UNIQUE (task, id)
) STRICT;

CREATE INDEX push_due ON push_configs (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX push_active ON push_configs (owner) WHERE active = 1;

CREATE TABLE push_dead (
    number   INTEGER PRIMARY KEY AUTOINCREMENT,
    config   INTEGER NOT NULL REFERENCES push_configs (ordinal) ON DELETE CASCADE,
    event    INTEGER NOT NULL,
    reason   TEXT    NOT NULL,
    attempts INTEGER NOT NULL,
    first_failed_at INTEGER NOT NULL,
    at       INTEGER NOT NULL,
    -- An operator wants it to be sent again.
    replay   INTEGER NOT NULL DEFAULT 0 CHECK (replay IN (0, 1)),
    UNIQUE (config, event)
) STRICT;
