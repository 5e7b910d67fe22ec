-- The action that was approved. NULL: the agent told nothing about it, or the approval was kept before this column existed.
ALTER TABLE approvals ADD COLUMN action TEXT;
