import { testDatabase } from "@khala/test-support/postgres/test_database";
import { startConversations } from "@khala/test-support/servers/conversations";
import { expect, test } from "vitest";

test("a conversation: two sockets, one that drops and resumes, a reload during the answer, and a stop", async () => {
  await using database = await testDatabase();
  await using server = await startConversations(database.url);
  const convId = "story";

  // Two sockets get the same bytes.
  await using laptop = await server.connect(convId);
  await laptop.first("hello");
  const phone = await server.connect(convId);
  await phone.first("hello");
  const started = await server.chat(convId, "Tell me a story");
  const turn = await server.engine.turn(started.run_id);
  turn.say("Once ", "upon ");
  await phone.frame("the first words", ({ event }) => event?.text_delta?.text?.includes("Once"));

  // One drops, and resumes from its cursor without a gap.
  const { cursor } = phone.view;
  const beforeDrop = phone.events;
  await phone[Symbol.asyncDispose]();
  turn.say("a time");
  await laptop.frame("the words after the drop", ({ event }) => event?.text_delta?.text?.includes("time"));
  await using resumed = await server.connect(convId, { after: cursor! });

  // A reload during the answer gets the part so far, and continues with it.
  const state = await server.state(convId);
  expect(state.run).toMatchObject({ run_id: started.run_id, status: "running" });
  await using reloaded = await server.connect(convId, { after: state.cursor! });
  await reloaded.first("hello");
  turn.say(", the end.");
  turn.finish();
  await Promise.all([laptop, resumed, reloaded].map((socket) => socket.runEnded(started.run_id)));
  expect([...beforeDrop, ...resumed.events]).toEqual(laptop.events);
  for (const socket of [laptop, resumed, reloaded]) expect(socket.view.wrong).toEqual([]);
  const answer = state
    .messages!.at(-1)!
    .parts!.map(({ text }) => text)
    .join("");
  const afterReload = [...reloaded.view.texts.values()].join("");
  expect(answer + afterReload).toBe("Once upon a time, the end.");
  expect([...(await server.texts(convId)).values()]).toEqual(["Tell me a story", answer + afterReload]);

  // A stop ends the run for everyone.
  expect(await server.settled(convId)).toBe("finished");
  const second = await server.chat(convId, "Another one");
  const stopped = await server.engine.turn(second.run_id);
  stopped.say("It was ");
  const response = await server.request(`/chat/${convId}/stop`, { method: "POST" });
  expect(await response.json()).toMatchObject({ run_id: second.run_id, stopped: true });
  const { event } = await laptop.runEnded(second.run_id);
  expect(event).toHaveProperty("run_stopped");
  expect(stopped.signal.aborted).toBe(true);
  expect(await server.settled(convId)).toBe("stopped");
});
