import { expectTypeOf, test } from "vitest";
import type { CursorJson, FrameJson, SubscribedJson } from "./sync_v1.ts";
import type { Wire } from "./wire.ts";

test("messages have the field names of their protos at every depth; keys of maps stay", () => {
  expectTypeOf<Wire<SubscribedJson>>().toEqualTypeOf<{
    subscription_id?: string;
    current_watermarks?: { [topic: string]: CursorJson };
  }>();
  type Batch = NonNullable<Wire<FrameJson>["update_batch"]>;
  expectTypeOf<Batch["replay_complete"]>().toEqualTypeOf<boolean | undefined>();
  expectTypeOf<NonNullable<Batch["updates"]>[number]["doc_key"]>().toEqualTypeOf<string | undefined>();
});
