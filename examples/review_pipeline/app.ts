import { agent, defineApp } from "@khala/server";
import { z } from "zod";

const Findings = z.object({ findings: z.array(z.string()) });

/** What is on the board, by type. */
const schemas = {
  PullRequest: z.object({ title: z.string(), diff: z.string().max(100_000) }),
  SecurityFindings: Findings,
  StyleFindings: Findings,
  Verdict: z.object({ merge: z.boolean(), findings: z.array(z.string()) }),
  Merged: z.object({ by: z.string(), idempotency_key: z.string() }),
};

/** Looks for what must not be in a repository. */
const security = agent("security", {
  schemas,
  consumes: "PullRequest",
  run({ artifact }) {
    const { diff } = artifact.payload;
    const findings = diff
      .split("\n")
      .filter((line) => /^\+.*(password|secret|BEGIN PRIVATE KEY)/i.test(line))
      .map((line) => `looks like a secret: ${line.slice(1).trim()}`);
    return { type: "SecurityFindings", payload: { findings } };
  },
});

/** Looks for what a reader would stumble over. It says so too when it finds nothing: the judge waits for it. */
const style = agent("style", {
  schemas,
  consumes: "PullRequest",
  retry: { attempts: 3, base: 200 },
  run({ artifact }) {
    const { diff } = artifact.payload;
    const long = diff.split("\n").filter((line) => line.startsWith("+") && line.length > 120);
    return { type: "StyleFindings", payload: { findings: long.map(() => "a line is over 120 characters") } };
  },
});

/** Decides when both have spoken about the same pull request: everything of it shares a correlation. */
const judge = agent("judge", {
  schemas,
  consumes: ["SecurityFindings", "StyleFindings"],
  join: { by: "correlation_id", types: ["SecurityFindings", "StyleFindings"], within: 60_000 },
  run({ artifacts }) {
    const findings = artifacts.flatMap(({ payload }) => payload.findings);
    return { type: "Verdict", payload: { merge: findings.length === 0, findings }, tags: ["verdict"] };
  },
});

/** Merges what was found good, once a person has said yes. */
const merger = agent("merger", {
  schemas,
  consumes: "Verdict",
  where: ({ payload }) => payload.merge,
  approval: true,
  run({ idempotencyKey }) {
    return { type: "Merged", payload: { by: "merger", idempotency_key: idempotencyKey } };
  },
});

export default defineApp({
  agents: [security, style, judge, merger],
  schemas,
});
