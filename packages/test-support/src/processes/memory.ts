import { readdir, readFile } from "node:fs/promises";

/** Memory in bytes of a process and its descendants, shared pages counted once (Linux). */
export async function memoryOf(root: number): Promise<number> {
  const parents = new Map<number, number>();
  for (const name of await readdir("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    const stat = await read(`/proc/${name}/stat`);
    // The name, the second field, may hold spaces and parentheses: count from its end.
    parents.set(Number(name), Number(stat.split(") ").at(-1)?.split(" ")[1]));
  }
  const family = new Set([root]);
  for (let size = 0; size !== family.size; ) {
    size = family.size;
    for (const [pid, parent] of parents) if (family.has(parent)) family.add(pid);
  }
  const shares = await Promise.all([...family].map((pid) => read(`/proc/${pid}/smaps_rollup`)));
  return shares.reduce((sum, text) => sum + Number(/^Pss:\s+(\d+) kB/m.exec(text)?.[1] ?? 0) * 1024, 0);
}

/** Empty when the process has ended. */
async function read(file: string): Promise<string> {
  try {
    return await readFile(file, "utf8");
  } catch (error) {
    if (["ENOENT", "ESRCH"].includes((error as NodeJS.ErrnoException).code ?? "")) return "";
    throw error;
  }
}
