import { expect, test } from "vitest";
import { failureOf, NotSent, redisError } from "./errors.ts";

/** An error as the client makes it of a server's answer. */
function reply(message: string): Error {
  return Object.assign(new Error(message), { name: "ReplyError", command: { args: ["what people wrote"] } });
}
const IN_SCRIPT_6 = "ERR Error running script (call to f_4a): @user_script:30: @user_script: 30: ";
const IN_SCRIPT_7 = " script: 4a, on @user_script:30.";

test("classifies the server's errors, also from inside a script of Redis 6.2 or 7", () => {
  const kinds = [
    ["MOVED 3999 127.0.0.1:6381", { kind: "moved", address: "127.0.0.1:6381" }],
    ["ASK 3999 :6381", { kind: "ask", address: ":6381" }],
    ["TRYAGAIN Multiple keys request during rehashing of slot", { kind: "try_again" }],
    ["CLUSTERDOWN The cluster is down", { kind: "try_again" }],
    ["NOSCRIPT No matching script. Please use EVAL.", { kind: "noscript" }],
    [`READONLY You can't write against a read only replica.${IN_SCRIPT_7}`, { kind: "readonly" }],
    [`${IN_SCRIPT_6}-READONLY You can't write against a read only replica.`, { kind: "readonly" }],
    ["WRONGTYPE Operation against a key holding the wrong kind of value", { kind: "answer" }],
  ] as const;
  for (const [message, failure] of kinds) expect(failureOf(reply(message)), message).toEqual(failure);
});

test("tells a command that was certainly not sent from one that may have run", () => {
  const offline = new Error("Stream isn't writeable and enableOfflineQueue options is false");
  expect(failureOf(offline)).toEqual({ kind: "unsent" });
  expect(failureOf(new NotSent("closed"))).toEqual({ kind: "unsent" });
  expect(failureOf(new Error("Connection is closed."))).toEqual({ kind: "lost" });
});

test("callers get a code, a message that says what to do, and no user content", () => {
  const codes = [
    [`OOM command not allowed when used memory > 'maxmemory'.${IN_SCRIPT_7}`, "overloaded"],
    [`${IN_SCRIPT_6}-OOM command not allowed when used memory > 'maxmemory'.`, "overloaded"],
    ["LOADING Redis is loading the dataset in memory", "unavailable"],
    ["MISCONF Errors writing to the AOF file: No space left on device", "unavailable"],
    ["NOAUTH Authentication required.", "unavailable"],
    ["WRONGTYPE Operation against a key holding the wrong kind of value", "internal"],
  ] as const;
  for (const [message, code] of codes) {
    const error = redisError(reply(message), "127.0.0.1:6379");
    expect(error, message).toMatchObject({ name: "KhalaError", code });
    expect(error.message).toContain("127.0.0.1:6379");
    expect(JSON.stringify(error) + String(error.cause)).not.toContain("wrote");
  }
});
