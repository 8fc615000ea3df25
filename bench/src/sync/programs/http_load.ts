import { randomUUID } from "node:crypto";
import { Agent, request } from "node:http";
import { runSummaries } from "@khala/server";
import { serve } from "../../kit/program.ts";
import { docKey, KEYS } from "../documents.ts";
import { closedLoop } from "./closed_loop.ts";

/** The routes that are compared. */
export const ROUTES = ["GET doc", "GET list, 50 documents", "POST event", "POST artifact"] as const;

/** One of them. */
export type Route = (typeof ROUTES)[number];

const agent = new Agent({ keepAlive: true, maxSockets: 64 });
let next = 0;

/** The next request of a route: reads go round the documents, writes are all new. */
function call(route: Route): { method: string; path: string; body?: string } {
  const n = next++ % KEYS;
  switch (route) {
    case "GET doc":
      return { method: "GET", path: `/sync/v1/doc/${encodeURIComponent(docKey(n))}` };
    case "GET list, 50 documents":
      return { method: "GET", path: `/sync/v1/list/${runSummaries.topic}?limit=50` };
    case "POST event": {
      const events = [{ event_id: randomUUID(), type: "run.started", data: { title: `Review ${n}` } }];
      const body = JSON.stringify({ expected_seq: "0", events });
      return { method: "POST", path: `/runtime/v1/runs/${randomUUID()}/events`, body };
    }
    case "POST artifact": {
      const body = JSON.stringify({ type: "Note", payload: { text: `Review pull request ${n}` } });
      return { method: "POST", path: "/blackboard/v1/artifacts", body };
    }
  }
}

const methods = {
  /** Clients that each send the next request when the one before is answered. Resolves with the rate per second. */
  run(load: { port: number; token: string; route: Route; clients: number; ms: number }): Promise<number> {
    const { port, token, route, clients: writers, ms } = load;
    return closedLoop({ writers, ms }, () => send(port, token, route));
  },
};

function send(port: number, token: string, route: Route): Promise<void> {
  const { method, path, body } = call(route);
  return new Promise((resolve, reject) => {
    const headers = { authorization: `Bearer ${token}`, ...(body && { "content-type": "application/json" }) };
    const sent = request({ agent, host: "127.0.0.1", port, method, path, headers }, (response) => {
      response.resume();
      const ok = response.statusCode! < 300;
      response.on("end", () =>
        ok ? resolve() : reject(new Error(`${method} ${path}: ${response.statusCode}`)),
      );
    });
    sent.on("error", reject);
    sent.end(body);
  });
}

/** What this program can be asked. */
export type HttpLoad = typeof methods;

serve(methods, () => agent.destroy());
