import { eventually } from "@khala/test-support/kit/eventually";
import { testDatabase } from "@khala/test-support/postgres/test_database";
import { startServer } from "@khala/test-support/servers/servers";
import { expect, test } from "vitest";
import { z } from "zod";
import { defineModel } from "../sync/model.ts";
import { defineStream } from "./stream.ts";

const tasks = defineStream({
  kind: "task",
  path: "/tasks/v1/tasks",
  scope: "tasks:write",
  events: {
    "task.added": z.object({ title: z.string().trim().min(1), tags: z.array(z.string()).default([]) }),
    "task.claimed": z.object({ by: z.string().refine(async (name) => name !== "nobody", "is nobody") }),
  },
  authorize: (_caller, _task, event) => (event.type === "task.claimed" ? true : undefined),
});
const titles = defineModel({
  topic: "tasks.titles",
  prefix: "task",
  streams: [tasks],
  project(before: { title: string; tags: string[]; by?: string } | null, event) {
    if (event.type === "task.added") return { title: event.data.title, tags: event.data.tags };
    return before && { ...before, by: event.data.by };
  },
});

test("events with zod schemas are checked, stored and projected; an error names the field", async () => {
  await using database = await testDatabase();
  await using server = await startServer(database.url, { models: [titles] });
  const token = (sub: string) => server.token({ sub, scopes: ["tasks.titles", "tasks:write"] });
  const ada = await token("ada");
  const append = async (type: string, data: unknown, caller = ada) => {
    const events = [{ event_id: crypto.randomUUID(), type, data }];
    const init = { method: "POST", body: JSON.stringify({ events }) };
    const headers = { "content-type": "application/json" };
    const answer = await server.request("/tasks/v1/tasks/t1/events", caller, { ...init, headers });
    return { status: answer.status, body: (await answer.json()) as object };
  };

  expect(await append("task.added", { title: " " })).toMatchObject({
    status: 400,
    body: { error: { code: "invalid_request", field: "events[0].data.title" } },
  });
  // The stored form is what the schema returns: trimmed, with its defaults, without unknown fields.
  expect(await append("task.added", { title: " Write ", extra: 1 })).toMatchObject({ status: 201 });
  // An asynchronous schema is awaited, and the stream's `authorize` gets what it returned.
  expect(await append("task.claimed", { by: "nobody" })).toMatchObject({
    status: 400,
    body: { error: { message: expect.stringContaining("events[0].data.by: is nobody") } },
  });
  expect(await append("task.claimed", { by: "grace" }, await token("grace"))).toMatchObject({ status: 201 });

  const document = await eventually("the document is there", async () => {
    const answer = await server.request("/sync/v1/doc/task:t1", ada);
    const { payload } = (await answer.json()) as { payload?: { by?: string } };
    return payload?.by ? payload : undefined;
  });
  expect(document).toEqual({ title: "Write", tags: [], by: "grace" });
});
