import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { afterEach, expect, test } from "vitest";
import { openTurns, room } from "./turns.ts";

const sockets: Socket[] = [];
afterEach(() => {
  for (const socket of sockets.splice(0)) socket.destroy();
});

function queue(port: number) {
  const socket = connect(port, "127.0.0.1");
  sockets.push(socket);
  let granted = false;
  const turn = once(socket, "data").then(() => {
    granted = true;
  });
  return { turn, granted: () => granted, hangUp: () => socket.destroy() };
}

test("the less the host gives, the fewer run, and one always does", () => {
  expect([0, 0.3, 0.4, 0.6, 0.7, 0.95, 1].map((stolen) => room(3, stolen))).toEqual([3, 3, 2, 2, 1, 1, 1]);
});

test("who finds no place waits until another hangs up", async () => {
  await using turns = await openTurns(() => 1);
  const first = queue(turns.port);
  await first.turn;
  const second = queue(turns.port);
  // Another that would be let in before it, were there room.
  const third = queue(turns.port);
  third.hangUp();
  turns.look();
  expect(second.granted()).toBe(false);
  first.hangUp();
  await second.turn;
});

test("more room lets in who waits; less takes no turn away", async () => {
  let places = 1;
  await using turns = await openTurns(() => places);
  const [first, second] = [queue(turns.port), queue(turns.port)];
  await Promise.race([first.turn, second.turn]);
  places = 2;
  turns.look();
  await Promise.all([first.turn, second.turn]);
  places = 1;
  const third = queue(turns.port);
  first.hangUp();
  expect(third.granted()).toBe(false);
  second.hangUp();
  await third.turn;
});
