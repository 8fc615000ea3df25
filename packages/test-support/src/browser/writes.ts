import type { Demo } from "./demo.ts";

/** Sends a request of the demo's developer, which must succeed. */
async function post(demo: Demo, scope: string, path: string, body: object): Promise<void> {
  const response = await fetch(demo.url + path, {
    method: "POST",
    headers: { "content-type": "application/json", authorization: `Bearer ${await demo.token([scope])}` },
    body: JSON.stringify(body),
  });
  if (!response.ok) throw new Error(`${path} was answered with ${response.status}: ${await response.text()}`);
}

/** Appends an event of a worker: its document gets one more version. */
export function happen(demo: Demo, worker: string, type: string, data: object = {}): Promise<void> {
  const event = { event_id: crypto.randomUUID(), type, data };
  return post(demo, "runtime:write", `/runtime/v1/workers/${worker}/events`, { events: [event] });
}

/** Sends a message to a conversation, as another device of the same user; it waits for the answer before it. */
export function say(demo: Demo, conv_id: string, message: string): Promise<void> {
  return post(demo, "chat", "/chat", { conv_id, message, policy: "queue" });
}
