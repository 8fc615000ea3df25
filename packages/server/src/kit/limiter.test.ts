import { expect, test } from "vitest";
import { openLimiter } from "./limiter.ts";

/** Works that end when they are told to, in the order in which they began. */
function works() {
  const begun: { readonly name: string; end(): void }[] = [];
  const work = (name: string) => () => new Promise<void>((resolve) => begun.push({ name, end: resolve }));
  return { begun, work, names: () => begun.map(({ name }) => name) };
}

const settled = () => new Promise<void>((resolve) => setImmediate(resolve));

test("runs as many works of a key as the limit allows, and the others in their order", async () => {
  const limiter = openLimiter(2);
  const { begun, work, names } = works();
  const all = ["a1", "a2", "a3", "a4"].map((name) => limiter.run("a", work(name)));
  await settled();
  expect(names()).toEqual(["a1", "a2"]);
  begun[0]!.end();
  await settled();
  expect(names()).toEqual(["a1", "a2", "a3"]);
  begun[1]!.end();
  begun[2]!.end();
  await settled();
  begun[3]!.end();
  await Promise.all(all);
});

test("does not make one key wait for another", async () => {
  const limiter = openLimiter(1);
  const { begun, work, names } = works();
  const all = [limiter.run("a", work("a1")), limiter.run("a", work("a2")), limiter.run("b", work("b1"))];
  await settled();
  expect(names()).toEqual(["a1", "b1"]);
  begun[0]!.end();
  begun[1]!.end();
  await settled();
  begun[2]!.end();
  await Promise.all(all);
});

test("gives a place back once", async () => {
  const limiter = openLimiter(1);
  const leave = await limiter.enter("a");
  const [second, third] = [limiter.enter("a"), limiter.enter("a")];
  leave();
  leave();
  await second;
  let entered = false;
  void third.then(() => {
    entered = true;
  });
  await settled();
  expect(entered).toBe(false);
});

test("continues after a work that fails", async () => {
  const limiter = openLimiter(1);
  const failing = limiter.run("a", () => Promise.reject(new Error("It fails.")));
  const next = limiter.run("a", async () => "done");
  await expect(failing).rejects.toThrow("It fails.");
  expect(await next).toBe("done");
});
