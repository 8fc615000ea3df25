// A server with the app of an example, whose file is named by EXAMPLE. Ends like programs/gateway.ts.
import { pathToFileURL } from "node:url";
import { createKhala, readConfig } from "@khala/server";

process.stdin.resume().once("close", () => process.exit(1));
const { default: app } = await import(pathToFileURL(process.env.EXAMPLE!).href);
const khala = await createKhala(app, { config: readConfig() });
console.log(`listening on ${khala.url}`);
process.once("SIGTERM", () => khala.stop().then(() => process.exit(0)));
