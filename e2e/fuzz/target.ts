// The server that is fuzzed, in a process of its own: production settings, an embedded PostgreSQL unless DATABASE_URL names
// one. Tells its parent where it listens, its routes and its memory.
import { createKhala, readConfig } from "@khala/server";
import app from "./app.ts";

const khala = await createKhala(app, { config: readConfig() });
const { routes, channels } = khala.gateway;

process.on("message", (question) => {
  if (question === "memory") {
    globalThis.gc?.();
    process.send!({ heap: process.memoryUsage().heapUsed, rss: process.memoryUsage().rss });
  }
});
process.once("disconnect", () => process.exit(1));
process.once("SIGTERM", () => void khala.stop().then(() => process.exit(0)));
process.send!({
  url: khala.url,
  routes: routes.map(({ method, path, action }) => ({ method, path, open: action === undefined })),
  channels: channels.map(({ topic, events }) => ({ topic, events: Object.keys(events) })),
});
