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

test("a folder is locked until it is given back, and its lock leaves nothing behind", () => {
  lockDataFolder(folder)();
  const release = lockDataFolder(folder);
  release();
  expect(readdirSync(folder)).toEqual([]);
});

test("a folder that another process has is refused with its pid and what to do", async () => {
  await using other = await rival();
  expect(other.words).toBe("mine");
  const message = `in use by the process ${other.pid}. Stop it, or set KHALA_DATA_DIR to another folder.`;
  expect(() => lockDataFolder(folder)).toThrow(message);
});

test("the same process cannot have a folder twice", () => {
  const release = lockDataFolder(folder);
  expect(() => lockDataFolder(folder)).toThrow(`in use by the process ${process.pid}`);
  release();
});

test("the lock of a process that was killed counts for nothing", async () => {
  {
    await using killed = await rival();
    expect(killed.words).toBe("mine");
  }
  lockDataFolder(folder)();
});

test.runIf(process.platform === "linux")(
  "the lock of an earlier process with the same id counts for nothing",
  () => {
    writeFileSync(join(folder, `lock.${process.ppid}`), "another boot 1");
    writeFileSync(join(folder, `lock.${process.pid}`), "another boot 2");
    lockDataFolder(folder)();
  },
);

test("of ten processes that want a folder at once, at most one gets it", async () => {
  const rivals = await Promise.all(Array.from({ length: 10 }, rival));
  await using _all = new AsyncDisposableStack();
  for (const other of rivals) _all.use(other);
  expect(rivals.filter((other) => other.words === "mine").length).toBeLessThanOrEqual(1);
});

test("a mark is never there without its text, by which a rival would take its process for one that is gone", async () => {
  // Opening a file and writing to it are two calls: it says what is there between them.
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
