import { readFile } from "node:fs/promises";
import { text } from "node:stream/consumers";
import { EXIT, Failure } from "../failure.ts";

/** The JSON that an option means: itself, `@file`, or `-` for the input. */
export async function readPayload(given: string): Promise<unknown> {
  const source = given === "-" ? "the input" : given.startsWith("@") ? given.slice(1) : "the payload";
  const json =
    given === "-"
      ? await text(process.stdin)
      : given.startsWith("@")
        ? await readFile(given.slice(1), "utf8").catch((cause) => {
            const advice = "A payload that begins with @ is the name of a file.";
            throw new Failure(`${source} cannot be read: ${cause.message}. ${advice}`, EXIT.usage, { cause });
          })
        : given;
  try {
    return JSON.parse(json);
  } catch (cause) {
    const advice = 'Quote it for the shell, such as \'{"text":"Hi"}\', or name a file with @.';
    throw new Failure(`In ${source} is no JSON: ${(cause as Error).message}. ${advice}`, EXIT.usage, {
      cause,
    });
  }
}
