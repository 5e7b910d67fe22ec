-- What agents have asked: everything that is open, and for a while what became of the rest.
CREATE TABLE interrupts (
    -- The order in which they were opened. An ask that is opened anew gets a new place.
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
    -- NULL: it never expires.
    expires_at INTEGER,
    -- What became of it. All NULL: it is open.
    resolution TEXT,
    closed_at  INTEGER,
    closed_by  TEXT,
    how        TEXT,
    CHECK ((resolution IS NULL) = (closed_at IS NULL)),
    CHECK (resolution IS NOT NULL OR (closed_by IS NULL AND how IS NULL))
) STRICT;

-- The open asks of an owner. Closed ones cost nothing there.
CREATE INDEX interrupts_open ON interrupts (owner, kind) WHERE resolution IS NULL;

-- The open asks of a task, and what goes with it.
CREATE INDEX interrupts_by_task ON interrupts (task, resolution);

-- The closed asks, oldest first.
CREATE INDEX interrupts_by_age ON interrupts (closed_at) WHERE closed_at IS NOT NULL;

-- Artifacts say of what kind they are. Before, their names did. A text that is damaged stays as it is: whoever asks
-- for it is told, and the gateway starts.
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
-- In a CASE, because the order in which AND looks at its sides is SQLite's.
WHERE CASE WHEN json_valid(artifacts) THEN json_type(artifacts) = 'array' END;
