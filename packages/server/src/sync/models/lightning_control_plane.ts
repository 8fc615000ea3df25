import { SCOPES } from "@khala/contracts";
import {
  InvoiceCancelledSchema,
  InvoiceCreatedSchema,
  InvoiceExpiredSchema,
  InvoiceFailedSchema,
  type InvoiceJson,
  InvoiceSettledSchema,
  PaymentStartedSchema,
} from "@khala/contracts/lightning/v1";
import { defineStream } from "../../events/stream.ts";
import { defineModel } from "../model.ts";

/** Invoices and the payments made for them. */
export const invoices = defineStream({
  kind: "invoice",
  path: "/lightning/v1/invoices",
  scope: SCOPES.runtimeWrite,
  events: {
    "invoice.created": InvoiceCreatedSchema,
    "invoice.payment_started": PaymentStartedSchema,
    "invoice.settled": InvoiceSettledSchema,
    "invoice.failed": InvoiceFailedSchema,
    "invoice.expired": InvoiceExpiredSchema,
    "invoice.cancelled": InvoiceCancelledSchema,
  },
});

/** From which states an event may move an invoice, and where to. A failed payment may be tried again. */
const MOVES: Record<string, { from: readonly string[]; to: string }> = {
  "invoice.payment_started": { from: ["open", "failed"], to: "paying" },
  "invoice.settled": { from: ["paying", "open"], to: "settled" },
  "invoice.failed": { from: ["paying"], to: "failed" },
  "invoice.expired": { from: ["open", "failed"], to: "expired" },
  "invoice.cancelled": { from: ["open", "failed"], to: "cancelled" },
};

/** `lightning.control_plane`: one document per invoice, `invoice:<invoice_id>`. */
export const lightningControlPlane = defineModel({
  topic: "lightning.control_plane",
  prefix: "invoice",
  table: "sync_lightning_control_plane",
  streams: [invoices],
  project(before: InvoiceJson | null, event) {
    if (event.type === "invoice.created") {
      if (before) return before;
      const { amount_msat = "0", memo, expires_at } = event.data;
      const invoice = { invoice_id: event.streamId, state: "open", amount_msat, attempts: 0 };
      const times = {
        created_at: event.at,
        updated_at: event.at,
        ...(expires_at !== undefined && { expires_at }),
      };
      return { ...invoice, ...times, ...(memo !== undefined && { memo }) };
    }
    const move = MOVES[event.type];
    // Reports of a network arrive late and twice: one that does not fit the state changes nothing.
    if (!before || !move?.from.includes(before.state ?? "")) return before;
    const invoice = { ...before, state: move.to, updated_at: event.at };
    switch (event.type) {
      case "invoice.payment_started":
        return {
          ...invoice,
          payment_hash: event.data.payment_hash ?? "",
          attempts: (before.attempts ?? 0) + 1,
        };
      case "invoice.settled":
        return { ...invoice, preimage: event.data.preimage ?? "" };
      case "invoice.failed":
        return { ...invoice, failure: event.data.reason ?? "" };
      default:
        return invoice;
    }
  },
});
