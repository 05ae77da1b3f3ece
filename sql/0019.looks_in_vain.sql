-- When somebody last wanted to look at the deadlines and the broker could not be asked: nodes could
-- not reach it either. A later look at the evidence begins the watch anew.
ALTER TABLE deadline_watches ADD COLUMN in_vain_at timestamptz;
