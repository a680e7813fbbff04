-- +goose Up

-- How far back the ledger reaches: the latest last write of all entries that were ever deleted, in a single row with
-- the name 'entries', which the first deletion inserts. It only ever rises, and is raised before an entry is deleted.
CREATE TABLE low_water (
    name text NOT NULL,
    mark integer NOT NULL,
    CONSTRAINT low_water_pkey PRIMARY KEY (name)
);

-- +goose Down
DROP TABLE low_water;
