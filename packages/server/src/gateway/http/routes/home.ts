import { KhalaError } from "@khala/contracts";
import type { Http } from "../http.ts";

/** `GET /` without a dashboard: a page that says what to do next. */
export function homeRoute(http: Http, { dev }: { dev: boolean }): void {
  http.open("GET", "/", async (_request, reply) =>
    reply
      .header(
        "Content-Security-Policy",
        "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
      )
      .header("X-Content-Type-Options", "nosniff")
      .type("text/html; charset=utf-8")
      .send(page(dev)),
  );
}

/** `GET` of the socket's address, without an upgrade. */
export function socketHintRoute(http: Http): void {
  http.open("GET", "/socket/websocket", async () => {
    throw new KhalaError(
      "upgrade_required",
      "This is a WebSocket. Connect with a Phoenix client, vsn=2.0.0.",
    );
  });
}

function page(dev: boolean): string {
  const token = dev
    ? "<li><code>POST /api/sync/token</code> gives you a token: development mints for this machine</li>"
    : "";
  return `<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Khala</title>
<style>:root{color-scheme:light dark}body{font:16px/1.6 system-ui;max-width:42rem;margin:4rem auto;padding:0 1rem}code{font-size:.9em}</style>
<h1>Khala is running</h1><p>Events become documents, and documents reach every screen; conversations reach every device; agents work on one board.</p>
<ul>${token}<li><code>POST /runtime/v1/runs/:run_id/events</code> appends to a run</li>
<li><code>GET /sync/v1/list/runtime.run_summaries</code> lists its documents</li>
<li><code>/socket</code> is a Phoenix socket: join <code>sync:v1</code> and push <code>subscribe</code></li>
<li><code>POST /chat</code> says something to an agent; <code>/ws?conv_id=</code> follows the conversation on every device</li>
<li><code>POST /blackboard/v1/artifacts</code> publishes something for agents to work on; <code>GET /blackboard/v1/agents</code> says how they are</li>
<li>The dashboard is not built: <code>npm run build</code> makes it, and the next start shows it here</li>
<li><a href="/readyz">/readyz</a>: how every part is · <a href="/metrics">/metrics</a>: what Prometheus scrapes</li></ul></html>`;
}
