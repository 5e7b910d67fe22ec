-- The current state of each task. The rows are small, because every append updates one; large data is in the tables below.
CREATE TABLE tasks (
    -- The order of creation, and the short key of the big tables.
    ordinal    INTEGER PRIMARY KEY,
    id         TEXT    NOT NULL UNIQUE,
    owner      TEXT    NOT NULL,
    context    TEXT    NOT NULL,
    -- State and time of the newest status in the log.
    state      TEXT    NOT NULL,
    status_at  INTEGER NOT NULL,
    -- The newest event that is not an artifact update: a snapshot that is not older is complete except for the artifacts.
    summary_seq INTEGER NOT NULL,
    -- The newest event, and the oldest that can still be read.
    head       INTEGER NOT NULL,
    first      INTEGER NOT NULL,
    -- The prompt of this task's turn. All three or none.
    session    TEXT,
    directory  TEXT,
    prompt     TEXT,
    CHECK ((session IS NULL) = (prompt IS NULL) AND (session IS NULL) = (directory IS NULL))
) STRICT;

-- The order of a list: without a filter, and with each of the two most selective filters.
CREATE INDEX tasks_by_owner   ON tasks (owner, status_at DESC, id DESC);
CREATE INDEX tasks_by_context ON tasks (owner, context, status_at DESC, id DESC);
CREATE INDEX tasks_by_state   ON tasks (owner, state, status_at DESC, id DESC);

-- The tasks that a start of the gateway resumes. Finished tasks are not in this index.
CREATE INDEX tasks_unfinished ON tasks (ordinal) WHERE state NOT IN ('completed', 'failed', 'canceled', 'rejected');

-- The log. Rows are only ever added.
CREATE TABLE events (
    task INTEGER NOT NULL REFERENCES tasks (ordinal) ON DELETE CASCADE,
    seq  INTEGER NOT NULL CHECK (seq > 0),
    at   INTEGER NOT NULL,
    kind TEXT    NOT NULL,
    body TEXT    NOT NULL,
    PRIMARY KEY (task, seq)
) STRICT, WITHOUT ROWID;

-- Each task as of some event. The artifacts are in the last column, so that a list without them does not read them.
CREATE TABLE snapshots (
    task      INTEGER PRIMARY KEY REFERENCES tasks (ordinal) ON DELETE CASCADE,
    seq       INTEGER NOT NULL,
    summary   TEXT    NOT NULL,
    artifacts TEXT    NOT NULL
) STRICT;

-- Every session that was ever bound, its first owner, who keeps it, and the directory of the last binding.
CREATE TABLE sessions (
    id        TEXT    NOT NULL PRIMARY KEY,
    owner     TEXT    NOT NULL,
    directory TEXT    NOT NULL,
    at        INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The session of each context. A context is unique per owner only.
CREATE TABLE bindings (
    owner     TEXT    NOT NULL,
    context   TEXT    NOT NULL,
    session   TEXT    NOT NULL REFERENCES sessions (id),
    directory TEXT    NOT NULL,
    -- Whether the caller named the session.
    named     INTEGER NOT NULL CHECK (named IN (0, 1)),
    at        INTEGER NOT NULL,
    PRIMARY KEY (owner, context)
) STRICT, WITHOUT ROWID;

-- Which send made which task.
CREATE TABLE idempotency (
    owner  TEXT    NOT NULL,
    digest BLOB    NOT NULL,
    task   INTEGER NOT NULL REFERENCES tasks (ordinal) ON DELETE CASCADE,
    at     INTEGER NOT NULL,
    PRIMARY KEY (owner, digest)
) STRICT, WITHOUT ROWID;

-- For expired keys, oldest first.
CREATE INDEX idempotency_by_age ON idempotency (owner, at);

-- The keys of a task. Without this index, removing a task would read every key.
CREATE INDEX idempotency_by_task ON idempotency (task);
