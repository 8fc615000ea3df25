import { expect, test } from "vitest";
import type { Appended } from "../../../../server/src/conversations/log/log.ts";
import { everything, Follower, type Handles, newStream, range, texts } from "./support.ts";

/** The promises of watching. */
export function watchPromises(handles: () => Handles): void {
  test("a watcher sees every append of either server, or is notified that it missed some", async () => {
    const { a, b } = handles();
    const stream = newStream();
    await a.append(stream, ["before"]);
    const followers = await Promise.all([a, a, b].map((log) => new Follower(log, stream).start()));
    await Promise.all(
      range(1, 40).map((i) => (i % 2 ? a : b).append(stream, i % 5 ? [`${i}`] : [`${i}`, `${i}+`])),
    );
    const { head, epoch } = await a.append(stream, ["last"]);
    const all = await everything(a, stream);
    for (const follower of followers) {
      await follower.reaches(head.seq, epoch);
      expect(follower.entries).toEqual(all);
      follower.stop();
    }
  });

  test("a missing stream can be watched", async () => {
    const { a, b } = handles();
    const stream = newStream();
    const follower = await new Follower(a, stream).start();
    expect(follower.entries).toEqual([]);
    const { epoch } = await b.append(stream, ["first", "second"]);
    await follower.reaches(2n, epoch);
    expect(texts(follower.entries)).toEqual(["first", "second"]);
    follower.stop();
  });

  test("a watcher gets the same epoch and entries as a reader", async () => {
    const { a } = handles();
    const stream = newStream();
    const told: Appended[] = [];
    let missed = 0;
    const unwatch = await a.watch(stream, {
      appended: (appended) => told.push(appended),
      missed: () => missed++,
    });
    const { epoch } = await a.append(stream, ["α", "β"]);
    await expect.poll(() => told.length + missed, { timeout: 15_000 }).toBeGreaterThan(0);
    const all = await everything(a, stream);
    for (const appended of told) expect(appended).toEqual({ epoch, entries: all });
    unwatch();
  });

  test("a stopped watcher gets nothing more, and the others do", async () => {
    const { a, b } = handles();
    const stream = newStream();
    const gone = await new Follower(a, stream).start();
    const stays = await new Follower(a, stream).start();
    gone.stop();
    const before = gone.calls;
    await a.append(stream, ["x"]);
    const { head } = await b.append(stream, ["y"]);
    await stays.reaches(head.seq);
    expect(gone.calls).toBe(before);
    stays.stop();
    const again = await new Follower(a, stream).start();
    const { head: end } = await b.append(stream, ["z"]);
    await again.reaches(end.seq);
    again.stop();
  });

  test("a watcher sees a stream that is created again under the same name", async () => {
    const { a, b } = handles();
    const stream = newStream();
    const old = await a.append(stream, ["old", "older"]);
    const follower = await new Follower(a, stream).start();
    await b.delete(stream);
    const fresh = await b.append(stream, ["new"]);
    expect(fresh.epoch).not.toBe(old.epoch);
    await follower.reaches(1n, fresh.epoch);
    expect(texts(follower.entries)).toEqual(["new"]);
    follower.stop();
  });
}
