-- The last number under which anything may have been written. Each opening of the file takes a greater one.
CREATE TABLE epochs (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    last INTEGER NOT NULL CHECK (last >= 0)
) STRICT;
INSERT INTO epochs (only, last) VALUES (1, 0);

-- Under which number each event was written, and the newest of each task. 0: before there were any.
ALTER TABLE events ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tasks ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0;

-- Whether the task is over and nothing more is to be folded away of its log.
ALTER TABLE tasks ADD COLUMN folded INTEGER NOT NULL DEFAULT 0 CHECK (folded IN (0, 1));

-- What is over, by age: what can be folded, and of what is folded, what can go. An append without a status leaves it alone.
CREATE INDEX tasks_over ON tasks (folded, status_at) WHERE state IN ('completed', 'failed', 'canceled', 'rejected');
