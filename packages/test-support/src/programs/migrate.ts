// Creates or updates the schema of the given database, as a starting server does.
import { pino } from "pino";
import { openDatabase } from "../../../server/src/database/database.ts";
import { migrate } from "../../../server/src/database/migrate.ts";

const log = pino({ level: "silent" });
const database = openDatabase({ url: process.argv[2]!, poolSize: 1, connectTimeoutMs: 60_000, log });
await migrate(database, log);
await database.close();
