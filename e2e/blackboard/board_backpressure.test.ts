import { agent, type Khala } from "@khala/server";
import { eventually } from "@khala/test-support/kit/eventually";
import { JumpClock } from "@khala/test-support/kit/jump_clock";
import { ADA, boardServers, Held, listed, publish } from "@khala/test-support/servers/board_servers";
import { expect, test } from "vitest";

/** A publisher does not wait longer for the lag to be known. */
const LAG_WITHIN_MS = 1_000;

/** Keeps those who wait for exactly so long until the test lets them go, and gives a slow database time to say how far behind it is. */
class HoldingClock extends JumpClock {
  readonly held: (() => void)[] = [];
  readonly #ms: number;

  constructor(ms: number) {
    super();
    this.#ms = ms;
  }

  override after(ms: number, fn: () => void): () => void {
    if (ms !== this.#ms) return super.after(ms === LAG_WITHIN_MS ? 60_000 : ms, fn);
    this.held.push(fn);
    return () => {};
  }
}

async function post({ auth, url }: Khala, draft: object): Promise<Response> {
  const scopes = ["blackboard:write"];
  const { token } = await auth.issuer!.mint({ sub: ADA.subject, org_id: ADA.org, scopes });
  return fetch(`${url}/blackboard/v1/artifacts`, {
    method: "POST",
    headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
    body: JSON.stringify(draft),
  });
}

test("slows publishing in proportion to an agent's lag, and refuses it beyond the limit", async () => {
  await using servers = await boardServers();
  const held = new Held();
  const slow = agent("slow", {
    consumes: "Job",
    order: "none",
    run: ({ artifact }, signal) => held.wait(artifact.id, signal),
  });
  const settings = { KHALA_BOARD_LAG_SLOW: "10", KHALA_BOARD_LAG_REFUSE: "20" };
  // 17 behind is seven tenths of the way from the one to the other, and the longest wait is a second.
  const clock = new HoldingClock(700);
  const khala = await servers.start({ agents: [slow], settings, clock });
  const behind = (count: number) =>
    eventually(`it is ${count} behind`, async () => {
      const lags = await khala.blackboard.lag();
      return lags.every(({ reader, lag }) => lag === (reader === "slow" ? String(count) : "0"));
    });
  const jobs = (count: number) => Array.from({ length: count }, (_, payload) => ({ type: "Job", payload }));
  await publish(khala, ...jobs(17));
  await behind(17);
  // The figure that the server has is old by now, and is asked for again.
  clock.jump(10_000);
  const posted = post(khala, { artifacts: jobs(5) });
  await eventually("the publisher waits", () => clock.held.length === 1);
  expect(await listed(khala, "Job")).toHaveLength(17);
  clock.held[0]!();
  expect((await posted).status).toBe(201);

  await behind(22);
  clock.jump(10_000);
  const refused = await post(khala, { type: "Job", payload: null });
  expect([refused.status, refused.headers.get("retry-after")]).toEqual([429, "2"]);
  expect(await refused.json()).toMatchObject({
    error: { code: "limit_exceeded", field: "waiting_tasks", retry_after_ms: 1_100 },
  });
  expect([clock.held.length, (await listed(khala, "Job")).length]).toEqual([1, 22]);
  held.release();
});
