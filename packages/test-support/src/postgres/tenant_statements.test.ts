import { expect, test } from "vitest";
import { unboundTables } from "./tenant_statements.ts";

const TABLES = new Set(["events", "streams"]);

test.each([
  "SELECT * FROM runtime.events WHERE org_id = $1 AND id = $2",
  "SELECT * FROM unnest($1::text[]) AS i(org_id) JOIN runtime.events e ON e.org_id = i.org_id",
  "INSERT INTO runtime.events (org_id, id) VALUES ($1, $2) ON CONFLICT (org_id, id) DO NOTHING",
  "UPDATE runtime.streams s SET seq = 1 FROM due WHERE s.org_id = due.org_id",
  "DELETE FROM runtime.streams WHERE (org_id, id) IN (SELECT * FROM unnest($1::text[], $2::text[]))",
  "SELECT * FROM runtime.events e WHERE (e.kind, e.org_id, e.id) > ($1, $2, 0) AND (e.kind, e.org_id, e.id) < ($1, $2, 9)",
  "SELECT count(*) FROM runtime.events WHERE (id, org_id) IN (SELECT * FROM unnest($1::text[], $2::text[]))",
  "SELECT 1 FROM runtime.heads",
])("bound: %s", (text) => {
  expect(unboundTables(text, TABLES)).toEqual([]);
});

test.each([
  "SELECT * FROM runtime.events WHERE id = $1",
  "SELECT org_id FROM runtime.events ORDER BY org_id",
  "INSERT INTO runtime.events (id) VALUES ($1)",
  "INSERT INTO runtime.events (org_id, id) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING",
  "UPDATE runtime.events SET type = $1 WHERE id = $2",
  "DELETE FROM runtime.events WHERE id = $1",
  "SELECT * FROM other o WHERE o.org_id = $1 AND EXISTS (SELECT FROM runtime.events WHERE id = $2)",
  "SELECT * FROM other o JOIN runtime.events e ON e.id = o.id WHERE o.org_id = $1",
  "SELECT * FROM runtime.events e WHERE (e.kind, e.org_id, e.id) > ($1, $2, 0)",
  "-- org_id = $1\nSELECT * FROM runtime.events",
])("unbound: %s", (text) => {
  expect(unboundTables(text, TABLES)).toEqual(["events"]);
});
