-- SQLite does not notice an overwritten byte inside a value. NULL: written before checksums existed.
ALTER TABLE events ADD COLUMN sum INTEGER;
ALTER TABLE snapshots ADD COLUMN sum INTEGER;

-- Every event of a later epoch has a checksum. -1: everything has one.
ALTER TABLE epochs ADD COLUMN unsummed INTEGER NOT NULL DEFAULT -1;
UPDATE epochs SET unsummed = last WHERE EXISTS (SELECT 1 FROM tasks);
