import { describe, expect, test } from "vitest";
import { contractsIn, type SchemaFiles, schemaProblems } from "./migrations.ts";

describe("a migration that older servers survive", () => {
  test.each([
    "CREATE TABLE runtime.later (id int PRIMARY KEY, note text NOT NULL)",
    "CREATE TABLE runtime.later (id int); ALTER TABLE runtime.later ADD CONSTRAINT k UNIQUE (id); CREATE UNIQUE INDEX i ON runtime.later (id)",
    "ALTER TABLE runtime.leases ADD COLUMN note text",
    "ALTER TABLE runtime.leases ADD COLUMN note text NOT NULL DEFAULT 'a, b', ADD n int",
    "ALTER TABLE runtime.leases ADD n bigint NOT NULL GENERATED ALWAYS AS IDENTITY",
    "ALTER TABLE runtime.leases ALTER COLUMN holder DROP NOT NULL",
    "CREATE INDEX i ON runtime.leases (holder)",
    "-- DROP TABLE runtime.leases;\nUPDATE runtime.leases SET holder = 'DROP TABLE x; RENAME'",
    "COMMENT ON TABLE runtime.leases IS $$DROP TABLE x;$$",
  ])("%s", (sql) => {
    expect(contractsIn(`${sql};`)).toEqual([]);
  });
});

describe("a migration that older servers do not survive", () => {
  test.each([
    ["DROP TABLE runtime.leases", "drops"],
    ["drop index runtime.i", "drops"],
    ["ALTER TABLE runtime.leases DROP COLUMN holder", "drops"],
    ["ALTER TABLE runtime.leases ADD note text, DROP holder", "drops"],
    ["ALTER TABLE runtime.leases ALTER holder DROP DEFAULT", "drops"],
    ["ALTER TABLE runtime.leases RENAME TO locks", "renames"],
    ["ALTER TABLE runtime.leases\n  RENAME COLUMN holder TO owner", "renames"],
    ["ALTER TABLE runtime.leases ALTER COLUMN holder TYPE uuid USING holder::uuid", "type of a column"],
    ["ALTER TABLE runtime.leases ALTER holder SET DATA TYPE uuid", "type of a column"],
    ["ALTER TYPE runtime.state RENAME VALUE 'a' TO 'b'", "changes a type"],
    ["ALTER TABLE runtime.leases ALTER COLUMN holder SET NOT NULL", "refuses rows"],
    ["ALTER TABLE runtime.leases ADD COLUMN note text NOT NULL", "give it a DEFAULT"],
    ["ALTER TABLE runtime.leases ADD a text DEFAULT '', ADD b text NOT NULL", "give it a DEFAULT"],
    ["ALTER TABLE runtime.leases ADD CONSTRAINT k CHECK (holder <> '')", "refuses rows"],
    ["CREATE UNIQUE INDEX i ON runtime.leases (holder)", "refuses rows"],
    ["TRUNCATE runtime.leases", "removes rows"],
    ["REVOKE ALL ON runtime.leases FROM khala", "rights"],
    ["DO $$ BEGIN DROP TABLE runtime.leases; END $$", "cannot be checked"],
  ])("%s", (sql, reason) => {
    expect(contractsIn(`${sql};`)).toEqual([expect.stringContaining(reason)]);
  });
});

describe("compared with a release", () => {
  const TRIM = "CREATE FUNCTION runtime.trim(p_stream text) RETURNS int\nLANGUAGE sql AS $$SELECT 1$$;\n";
  const DROP = "ALTER TABLE runtime.leases DROP COLUMN holder;";
  const released = {
    "baseline/sync.sql": "CREATE TABLE runtime.leases (holder text);",
    "functions/trim.sql": TRIM,
    "migrations/0002_first.sql": "CREATE TABLE runtime.later (id int);",
  };
  const problems = (changes: Record<string, string | undefined>, others: Partial<SchemaFiles> = {}) => {
    const current = Object.entries({ ...released, ...changes }).filter(([, sql]) => sql !== undefined);
    return schemaProblems({
      version: "0.3.0",
      releases: ["0.2.0", "0.1.0"],
      released: new Map(Object.entries(released)),
      current: new Map(current as [string, string][]),
      ...others,
    });
  };

  test("accepts the same files and a new migration", () => {
    expect(problems({})).toEqual([]);
    expect(problems({ "migrations/0003_next.sql": "CREATE TABLE runtime.next (id int);" })).toEqual([]);
  });

  test("refuses to edit, rename or remove released tables and migrations", () => {
    for (const path of ["baseline/sync.sql", "migrations/0002_first.sql"])
      expect(problems({ [path]: "SELECT 1;" })).toEqual([expect.stringContaining(`${path}: it is released`)]);
    expect(problems({ "baseline/sync.sql": undefined })).toHaveLength(1);
  });

  test("accepts any change before the first release", () => {
    expect(problems({ "baseline/sync.sql": "x" }, { releases: [], released: new Map() })).toEqual([]);
  });

  test("a contracting migration names a release that is at least a minor older", () => {
    const contract = (line: string, version = "0.3.0") =>
      problems({ "migrations/0003_next.sql": `${line}\n${DROP}` }, { version });
    expect(contract("-- later")).toEqual([expect.stringContaining("drops")]);
    expect(contract("-- contract: since 0.2.0")).toEqual([]);
    expect(contract("-- contract: since 0.1.0", "1.0.0")).toEqual([]);
    for (const line of ["-- contract: since 0.2.0", "-- contract: since 0.2.5", "-- contract: 0.1.0"])
      expect(contract(line, "0.2.9")).toEqual([expect.stringContaining("released version")]);
  });

  test("numbers migrations without gaps", () => {
    expect(problems({ "migrations/0004_next.sql": "" })).toEqual([expect.stringContaining("0003")]);
    expect(problems({ "migrations/0002_again.sql": "" })).not.toEqual([]);
  });

  test("a function keeps its signature, and its change has a version", () => {
    const version = { "migrations/0003_functions.sql": "-- trim is faster" };
    const faster = TRIM.replace("SELECT 1", "SELECT 2");
    const other = TRIM.replace("p_stream text", "p_stream text, p_most int");
    expect(problems({ "functions/trim.sql": faster })).toEqual([expect.stringContaining("add a migration")]);
    expect(problems({ "functions/next.sql": TRIM })).toEqual([expect.stringContaining("add a migration")]);
    expect(problems({ "functions/trim.sql": faster, ...version })).toEqual([]);
    for (const sql of [other, undefined])
      expect(problems({ "functions/trim.sql": sql, ...version })).toEqual([
        expect.stringContaining("old signature"),
      ]);
    const contract = { "migrations/0003_functions.sql": "-- contract: since 0.2.0" };
    expect(problems({ "functions/trim.sql": undefined, ...contract })).toEqual([]);
  });
});
