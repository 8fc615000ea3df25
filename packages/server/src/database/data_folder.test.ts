import { spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync, writeFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { afterEach, beforeEach, expect, test } from "vitest";
import { lockDataFolder } from "./data_folder.ts";

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "khala-lock-"));
});
afterEach(() => rm(folder, { recursive: true, force: true }));

/** A process that locks the folder, prints "mine" or the refusal, and stays. */
async function rival() {
  const module = join(import.meta.dirname, "data_folder.ts");
  const program = `import { lockDataFolder } from ${JSON.stringify(module)};
    try { lockDataFolder(process.argv[1]); console.log("mine"); } catch (error) { console.log(error.message); }
    process.stdin.resume();`;
  const child = spawn(process.execPath, ["--input-type=module", "-e", program, folder], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  const [words] = (await once(child.stdout.setEncoding("utf8"), "data")) as [string];
  return {
    words: words.trim(),
    pid: child.pid,
    async [Symbol.asyncDispose]() {
      child.kill("SIGKILL");
      await once(child, "exit");
    },
  };
}

test("locks a folder until it is released, and leaves no file behind", () => {
  lockDataFolder(folder)();
  const release = lockDataFolder(folder);
  release();
  expect(readdirSync(folder)).toEqual([]);
});

test("refuses a folder that another process has locked, with its pid and what to do", async () => {
  await using other = await rival();
  expect(other.words).toBe("mine");
  const message = `in use by the process ${other.pid}. Stop it, or set KHALA_DATA_DIR to another folder.`;
  expect(() => lockDataFolder(folder)).toThrow(message);
});

test("refuses to lock a folder twice in one process", () => {
  const release = lockDataFolder(folder);
  expect(() => lockDataFolder(folder)).toThrow(`in use by the process ${process.pid}`);
  release();
});

test("ignores the lock of a killed process", async () => {
  {
    await using killed = await rival();
    expect(killed.words).toBe("mine");
  }
  lockDataFolder(folder)();
});

test.runIf(process.platform === "linux")("ignores the lock of an earlier process with the same pid", () => {
  writeFileSync(join(folder, `lock.${process.ppid}`), "another boot 1");
  writeFileSync(join(folder, `lock.${process.pid}`), "another boot 2");
  lockDataFolder(folder)();
});

test("gives the lock to at most one of ten processes that start at once", async () => {
  const rivals = await Promise.all(Array.from({ length: 10 }, rival));
  await using _all = new AsyncDisposableStack();
  for (const other of rivals) _all.use(other);
  expect(rivals.filter((other) => other.words === "mine").length).toBeLessThanOrEqual(1);
});

test("never shows a lock file without its text, which would look like that of a dead process", async () => {
  // Opening a file and writing to it are two calls: checks the state between them.
  const program = `import fs from "node:fs";
    import { syncBuiltinESMExports } from "node:module";
    const [module, folder] = process.argv.slice(1);
    const write = fs.writeFileSync;
    fs.writeFileSync = (file, ...rest) => {
      write(file, "");
      console.log(fs.readdirSync(folder).filter((name) => /^lock\\.\\d+$/.test(name)).length);
      write(file, ...rest);
    };
    syncBuiltinESMExports();
    (await import(module)).lockDataFolder(folder);`;
  const module = join(import.meta.dirname, "data_folder.ts");
  const child = spawn(process.execPath, ["--input-type=module", "-e", program, module, folder], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  expect(await text(child.stdout)).toBe("0\n");
});
