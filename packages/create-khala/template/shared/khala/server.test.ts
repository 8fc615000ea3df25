import assert from "node:assert/strict";
import { test } from "node:test";
import { createClient } from "@khala/client";
import { startTestServer } from "@khala/testing";
import app from "./app.ts";

test("a client reads the document of an event", async (t) => {
  const server = await startTestServer(app);
  t.after(() => server.stop());
  const token = await server.token();
  const appended = await fetch(`${server.url}/app/v1/tasks/1/events`, {
    method: "POST",
    headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
    body: JSON.stringify({ events: [{ event_id: "e1", type: "task.added", data: { title: "Hi" } }] }),
  });
  assert.equal(appended.status, 201);

  const khala = createClient<typeof app>({ url: server.url, token: () => server.token() });
  const found = Promise.withResolvers<string>();
  khala.sync.subscribe("app.tasks", () => {
    const [first] = khala.sync.list("app.tasks").items;
    if (first) found.resolve(first.data.title);
  });
  assert.equal(await found.promise, "Hi");
  await khala.close();
});
