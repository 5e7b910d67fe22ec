-- The directory of each context, set by its first task. A context is unique per owner only.
CREATE TABLE contexts (
    owner     TEXT    NOT NULL,
    context   TEXT    NOT NULL,
    directory TEXT    NOT NULL,
    at        INTEGER NOT NULL,
    PRIMARY KEY (owner, context)
) STRICT, WITHOUT ROWID;

-- Existing contexts get the directory of their session. A context without a session gets one with its next task.
INSERT INTO contexts (owner, context, directory, at) SELECT owner, context, directory, at FROM bindings;

-- The root of the tree that a sub-agent's task belongs to and is removed with. NULL: not the task of a sub-agent.
ALTER TABLE tasks ADD COLUMN root TEXT REFERENCES tasks (id) ON DELETE CASCADE;

-- The media types that the caller accepts, as JSON. NULL: any.
ALTER TABLE tasks ADD COLUMN output TEXT;

-- The prompts that joined the turn, as JSON. NULL: none.
ALTER TABLE tasks ADD COLUMN joined TEXT;

-- In the order of creation. Only tasks of sub-agents are in this index.
CREATE INDEX tasks_by_root ON tasks (root) WHERE root IS NOT NULL;

-- The order of a list, as before, and with the root: a list without sub-agents reads and counts in the index alone.
DROP INDEX tasks_by_owner;
DROP INDEX tasks_by_context;
DROP INDEX tasks_by_state;
CREATE INDEX tasks_by_owner   ON tasks (owner, status_at DESC, id DESC, root);
CREATE INDEX tasks_by_context ON tasks (owner, context, status_at DESC, id DESC, root);
CREATE INDEX tasks_by_state   ON tasks (owner, state, status_at DESC, id DESC, root);

-- The files of tasks, without their content.
CREATE TABLE files (
    ordinal    INTEGER PRIMARY KEY,
    id         TEXT    NOT NULL UNIQUE,
    task       INTEGER NOT NULL REFERENCES tasks (ordinal) ON DELETE CASCADE,
    -- The task's owner.
    owner      TEXT    NOT NULL,
    name       TEXT,
    media_type TEXT    NOT NULL,
    size       INTEGER NOT NULL CHECK (size >= 0),
    sha256     BLOB    NOT NULL CHECK (length(sha256) = 32),
    at         INTEGER NOT NULL,
    -- Whether all chunks are written. Until then the file is invisible.
    complete   INTEGER NOT NULL CHECK (complete IN (0, 1))
) STRICT;

-- For the removal of a task.
CREATE INDEX files_by_task ON files (task);

-- The incomplete files, which a start of the gateway removes.
CREATE INDEX files_incomplete ON files (ordinal) WHERE complete = 0;

-- The content of files, in chunks of one size except the last. With a rowid, because the rows are large.
CREATE TABLE file_chunks (
    file  INTEGER NOT NULL REFERENCES files (ordinal) ON DELETE CASCADE,
    place INTEGER NOT NULL CHECK (place >= 0),
    bytes BLOB    NOT NULL,
    UNIQUE (file, place)
) STRICT;
