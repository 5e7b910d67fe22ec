-- SQLite does not notice an overwritten byte inside a value. NULL: written before checksums existed.
ALTER TABLE events ADD COLUMN sum INTEGER;
ALTER TABLE snapshots ADD COLUMN sum INTEGER;

-- Every event of a later epoch has a checksum. -1: everything has one.
ALTER TABLE epochs ADD COLUMN unsummed INTEGER NOT NULL DEFAULT -1;
UPDATE epochs SET unsummed = last WHERE EXISTS (SELECT 1 FROM tasks);

-- The tool call that waits for the answer to an ask, and what a permission asks for.
ALTER TABLE interrupts ADD COLUMN call TEXT;
ALTER TABLE interrupts ADD COLUMN permission TEXT;

-- The answers `always` that the gateway keeps: for an owner, in a session and its sub-agents.
CREATE TABLE approvals (
    owner      TEXT    NOT NULL,
    -- The ask that was answered so.
    request    TEXT    NOT NULL,
    session    TEXT    NOT NULL,
    -- The approval is removed with this context.
    context    TEXT    NOT NULL,
    permission TEXT    NOT NULL,
    patterns   TEXT    NOT NULL,
    at         INTEGER NOT NULL,
    PRIMARY KEY (owner, request)
) STRICT;

CREATE INDEX approvals_of_session ON approvals (owner, session, at);
CREATE INDEX approvals_of_context ON approvals (owner, context);
