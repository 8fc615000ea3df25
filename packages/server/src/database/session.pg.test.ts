import { testDatabase } from "@khala/test-support/postgres/test_database";
import { pino } from "pino";
import { expect, test } from "vitest";
import { openDatabase } from "./database.ts";

/** Values that a company may have set for a database or a role, each with the one that Khala needs. */
const UNUSUAL = [
  ["datestyle", "SQL, DMY", "ISO, YMD"],
  ["intervalstyle", "sql_standard", "postgres"],
  ["timezone", "Pacific/Apia", "UTC"],
  ["bytea_output", "escape", "hex"],
  ["extra_float_digits", "-15", "1"],
  ["standard_conforming_strings", "off", "on"],
  ["array_nulls", "off", "on"],
  ["quote_all_identifiers", "on", "off"],
  ["default_transaction_isolation", "serializable", "read committed"],
  ["jit", "on", "off"],
  ["lock_timeout", "100", "0"],
  ["idle_session_timeout", "100000", "0"],
  ["idle_in_transaction_session_timeout", "100", "15s"],
] as const;

test("every session has the same settings, whatever the database's are", async () => {
  await using other = await testDatabase();
  const name = new URL(other.url).pathname.slice(1);
  for (const [setting, unusual] of UNUSUAL)
    await other.database.query({ text: `ALTER DATABASE "${name}" SET ${setting} = '${unusual}'` });
  const database = openDatabase({ url: other.url, poolSize: 1, log: pino({ level: "silent" }) });
  const alone = await database.connect();
  try {
    for (const [setting, , needed] of UNUSUAL) {
      const show = { text: `SELECT current_setting('${setting}') AS value` };
      const expected = [{ value: needed }];
      expect(await database.query(show), setting).toEqual(expected);
      expect(await database.interactive((tx) => tx.query(show)), setting).toEqual(expected);
      expect((await alone.query(show)).rows, setting).toEqual(expected);
    }
  } finally {
    await alone.end();
    await database.close();
  }
});
