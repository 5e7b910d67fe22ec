-- The asks of agents: all open ones, and for a while the closed ones.
CREATE TABLE interrupts (
    -- The order of opening. An ask that is opened again gets a new ordinal.
    ordinal    INTEGER PRIMARY KEY,
    request    TEXT    NOT NULL UNIQUE,
    task       INTEGER NOT NULL REFERENCES tasks (ordinal) ON DELETE CASCADE,
    -- The task's owner, for the index.
    owner      TEXT    NOT NULL,
    kind       TEXT    NOT NULL,
    session    TEXT    NOT NULL,
    summary    TEXT    NOT NULL,
    details    TEXT    NOT NULL,
    questions  TEXT    NOT NULL,
    asked_at   INTEGER NOT NULL,
    -- NULL: never.
    expires_at INTEGER,
    -- How the ask was closed. All NULL: the ask is open.
    resolution TEXT,
    closed_at  INTEGER,
    closed_by  TEXT,
    how        TEXT,
    CHECK ((resolution IS NULL) = (closed_at IS NULL)),
    CHECK (resolution IS NOT NULL OR (closed_by IS NULL AND how IS NULL))
) STRICT;

-- The open asks of an owner. Closed asks are not in this index.
CREATE INDEX interrupts_open ON interrupts (owner, kind) WHERE resolution IS NULL;

-- The asks of a task, for its open asks and for its removal.
CREATE INDEX interrupts_by_task ON interrupts (task, resolution);

-- The closed asks, oldest first.
CREATE INDEX interrupts_by_age ON interrupts (closed_at) WHERE closed_at IS NOT NULL;

-- Artifacts get an explicit kind; before, their names implied it. Damaged text stays unchanged: a request
-- for it reports the damage, and the gateway starts.
UPDATE events
SET body = json_set(body, '$.artifact.artifact.kind',
    CASE
        WHEN body ->> '$.artifact.artifact.name' = 'reasoning' THEN 'reasoning'
        WHEN body ->> '$.artifact.artifact.name' GLOB 'tool:*' THEN 'tool_call'
        ELSE 'text'
    END)
WHERE kind = 'artifact' AND json_valid(body);

UPDATE snapshots
SET artifacts = (
    SELECT json_group_array(json_set(value, '$.kind',
        CASE
            WHEN value ->> '$.name' = 'reasoning' THEN 'reasoning'
            WHEN value ->> '$.name' GLOB 'tool:*' THEN 'tool_call'
            ELSE 'text'
        END) ORDER BY key)
    FROM json_each(snapshots.artifacts))
-- In a CASE, because SQLite may evaluate the sides of AND in any order.
WHERE CASE WHEN json_valid(artifacts) THEN json_type(artifacts) = 'array' END;
