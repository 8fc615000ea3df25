import { ManualClock } from "@khala/test-support/kit/manual_clock";
import { describe, expect, test } from "vitest";
import { retryTimeouts, retryWithoutCoordinator } from "./kafka_errors.ts";

const [TIMED_OUT, NOT_COORDINATOR, REFUSED] = [-185, 16, 29];

/** A call that fails with these codes, one after the other, and then succeeds. */
function failing(...codes: readonly number[]) {
  const left = [...codes];
  const call = async () => {
    call.calls++;
    const code = left.shift();
    if (code !== undefined) throw Object.assign(new Error(`code ${code}`), { code });
  };
  call.calls = 0;
  return call;
}

describe("retries of a call", () => {
  test("retries a timeout, and no other failure", async () => {
    const clock = new ManualClock();
    const slow = failing(TIMED_OUT, TIMED_OUT);
    await retryTimeouts({ clock }, 1_000, slow);
    expect(slow.calls).toBe(3);
    const refused = failing(TIMED_OUT, REFUSED, TIMED_OUT);
    await expect(retryTimeouts({ clock }, 1_000, refused)).rejects.toThrow("code 29");
    expect(refused.calls).toBe(2);
  });

  test("retries after a pause while the coordinator moves, up to its time limit", async () => {
    const clock = new ManualClock();
    const moves = failing(...Array.from({ length: 3 }, () => NOT_COORDINATOR));
    const answered = retryWithoutCoordinator({ clock }, 15_000, moves);
    await clock.advance(0);
    expect(moves.calls).toBe(1);
    await clock.advance(1_000);
    await answered;
    expect(moves.calls).toBe(4);
    const lost = failing(...Array.from({ length: 1_000 }, () => NOT_COORDINATOR));
    const never = expect(retryWithoutCoordinator({ clock }, 15_000, lost)).rejects.toThrow("code 16");
    await clock.advance(0);
    await clock.advance(20_000);
    await never;
    expect(lost.calls).toBe(61);
  });
});
