import type { Meter } from "@opentelemetry/api";

/** What the gateway counts. */
export type GatewayMetrics = ReturnType<typeof gatewayMetrics>;

/** Makes the gateway's instruments. */
export function gatewayMetrics(meter: Meter) {
  return {
    sockets: meter.createObservableGauge("khala_gateway_sockets", { description: "Open sockets" }),
    waitingBytes: meter.createObservableGauge("khala_gateway_waiting_bytes", {
      description: "Bytes that wait to be written to sockets",
    }),
    connects: meter.createCounter("khala_gateway_connects_total", { description: "Sockets opened" }),
    closes: meter.createCounter("khala_gateway_closes_total", {
      description: "Sockets closed, by close code",
    }),
    denials: meter.createCounter("khala_gateway_denials_total", {
      description: "Requests and handshakes refused, by error code",
    }),
    requests: meter.createHistogram("khala_gateway_request_ms", {
      description: "HTTP requests, by route and status",
      unit: "ms",
    }),
  };
}
