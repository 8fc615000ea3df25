import type { Plane } from "../kit/plane.ts";
import { startPostgres } from "../kit/postgres.ts";
import { audiences } from "./audiences.ts";
import type { PartRunner } from "./bench.ts";
import { centrifugoVersion } from "./centrifugo.ts";
import { fanout } from "./fanout.ts";
import { latency } from "./latency.ts";
import { memory } from "./memory.ts";
import { parts } from "./parts.ts";
import { resume } from "./resume.ts";
import { throughGateway } from "./through_gateway.ts";
import { versions } from "./versions.ts";
import { writes } from "./writes.ts";

const PARTS: Readonly<Record<string, PartRunner>> = {
  a: writes,
  b: fanout,
  c: latency,
  d: resume,
  e: memory,
  f: throughGateway,
  g: audiences,
  h: parts,
};

/** The sync plane: documents and who is told of them. */
export const syncPlane: Plane = {
  parts: Object.keys(PARTS),
  results: "RESULTS.md",
  async open(effort, stack) {
    const postgres = stack.use(await startPostgres());
    const centrifugo = centrifugoVersion();
    const bench = { ...effort, postgres, centrifugo: centrifugo !== undefined };
    return {
      versions: versions(postgres.version, centrifugo),
      measure: (part) => PARTS[part]!(bench),
    };
  },
};
