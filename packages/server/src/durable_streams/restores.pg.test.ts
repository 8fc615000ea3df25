import { testDatabase } from "@khala/test-support/postgres/test_database";
import { serveStreams } from "@khala/test-support/servers/durable_streams";
import { expect, test } from "vitest";

const headers = { "Content-Type": "text/plain" };
const offsetOf = (response: Response) => response.headers.get("Stream-Next-Offset")!;

test("an offset is stale after a restore, also when other bytes have reached its position since", async () => {
  await using own = await testDatabase();
  await using server = await serveStreams(own.database);
  const url = `${server.url}/notes`;
  const append = (body: string) => fetch(url, { method: "POST", headers, body });
  const read = async (offset: string, more = "") => {
    const response = await fetch(`${url}?offset=${offset}${more}`);
    return [response.status, await response.text()];
  };
  const fork = (offset: string, path: string) =>
    fetch(`${server.url}/${path}`, {
      method: "PUT",
      headers: { "Stream-Forked-From": "notes", "Stream-Fork-Offset": offset },
    });

  const kept = offsetOf(await fetch(url, { method: "PUT", headers, body: "kept " }));
  const lost = offsetOf(await append("lost "));
  expect(await read(lost)).toEqual([200, ""]);
  // The rows as the backup had them.
  await own.database.transaction([
    { text: "DELETE FROM runtime.durable_stream_chunks WHERE position > 5" },
    {
      text: "UPDATE runtime.durable_streams SET tail = 5, written_at = (SELECT max(written_at) FROM runtime.durable_stream_chunks)",
    },
  ]);
  expect(await read(lost)).toMatchObject([410, expect.stringContaining("stale_cursor")]);
  await append("else ");
  for (const more of ["", "&live=long-poll", "&live=sse"])
    expect(await read(lost, more)).toMatchObject([410, expect.stringContaining("stale_cursor")]);
  expect((await fork(lost, "of_lost")).status).toBe(400);
  expect(await read(kept)).toEqual([200, "else "]);
  const forked = await fork(kept, "of_kept");
  expect(forked.status).toBe(201);
  // Offsets of the source, as far as it is inherited, and those of the fork itself.
  for (const offset of [kept, offsetOf(forked)]) {
    const response = await fetch(`${server.url}/of_kept?offset=${offset}`);
    expect([response.status, await response.text()]).toEqual([200, ""]);
  }
});
