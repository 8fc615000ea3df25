import { ERRORS, type ErrorCode } from "@khala/contracts";
import type { Meter } from "@opentelemetry/api";
import { durations } from "../kit/telemetry.ts";

/** The gateway's metrics. */
export type GatewayMetrics = ReturnType<typeof gatewayMetrics>;

/** Close codes that have a label of their own: the server's, and those of a client or a lost connection. */
const CLOSES: ReadonlySet<number> = new Set([
  1000,
  1005,
  1006,
  ...Object.values(ERRORS).map(({ close }) => close),
]);

/** The label of a close code. Clients may send any of thousands, and each would be a series. */
export function closeLabel(code: number): string {
  return CLOSES.has(code) ? String(code) : "other";
}

/** Whether an error means unauthenticated or forbidden. */
export function isDenial(code: ErrorCode): boolean {
  const { status } = ERRORS[code];
  return status === 401 || status === 403;
}

/** Makes the gateway's instruments. Counters begin at 0, so that the first of a kind is a rise. */
export function gatewayMetrics(meter: Meter) {
  const metrics = {
    sockets: meter.createObservableGauge("khala_gateway_sockets", { description: "Open sockets" }),
    waitingBytes: meter.createObservableGauge("khala_gateway_waiting_bytes", {
      description: "Bytes that wait to be written to sockets",
    }),
    connects: meter.createCounter("khala_gateway_connects_total", { description: "Sockets opened" }),
    closes: meter.createCounter("khala_gateway_closes_total", {
      description: "Sockets closed, by close code",
    }),
    denials: meter.createCounter("khala_gateway_denials_total", {
      description: "Requests, handshakes and pushes refused, by error code",
    }),
    requests: durations(
      meter,
      "http_server_request_duration_seconds",
      "HTTP requests, by route, method and status",
    ),
  };
  metrics.connects.add(0);
  for (const code of CLOSES) metrics.closes.add(0, { code: String(code) });
  for (const code of Object.keys(ERRORS) as ErrorCode[]) if (isDenial(code)) metrics.denials.add(0, { code });
  return metrics;
}
