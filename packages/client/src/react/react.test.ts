import {
  act,
  createElement,
  type ReactNode,
  StrictMode,
  startTransition,
  useLayoutEffect,
  useState,
} from "react";
import { createRoot, hydrateRoot } from "react-dom/client";
import { renderToString } from "react-dom/server";
import { afterEach, beforeEach, describe, expect, expectTypeOf, test } from "vitest";
import {
  hooksOf,
  KhalaProvider,
  useAppend,
  useBoard,
  useConnection,
  useConversation,
  useKhala,
} from "../react.ts";
import { container, type HandDocuments, handClient } from "./test_support.ts";

const { useDoc, useList } = hooksOf<{ readonly documents?: HandDocuments }>();

let hand: ReturnType<typeof handClient>;
let element: ReturnType<typeof container>;
let unmount: (() => Promise<void>) | undefined;
beforeEach(() => {
  hand = handClient();
  element = container();
});
afterEach(async () => {
  await unmount?.();
  unmount = undefined;
});

function inProvider(children: ReactNode) {
  return createElement(StrictMode, null, createElement(KhalaProvider, { client: hand.client }, children));
}

/** Renders in Strict Mode, as an app has it in development. */
async function render(children: ReactNode) {
  const root = createRoot(element);
  await act(async () => root.render(inProvider(children)));
  unmount = () => act(async () => root.unmount());
}

/** Lets a test change something, and React show it. */
const change = (work: () => unknown) =>
  act(async () => {
    await work();
    await new Promise((resolve) => setImmediate(resolve));
    hand.environment.pass(20);
  });

describe("useDoc", () => {
  function Note({ id }: { id: string }) {
    const { data, phase } = useDoc("notes", id);
    return createElement("p", null, `${phase}: ${data?.text ?? "nothing"}`);
  }

  test("shows a document and every change", async () => {
    await render(createElement(Note, { id: "a" }));
    expect(element.innerHTML).toBe("<p>loading: nothing</p>");
    await change(() => hand.topics.replace("notes", { a: { text: "one" } }));
    expect(element.innerHTML).toBe("<p>live: one</p>");
    await change(() => hand.topics.set("notes", "a", 2, { text: "two" }));
    expect(element.innerHTML).toBe("<p>live: two</p>");
    await change(() => hand.topics.set("notes", "a", 3, undefined));
    expect(element.innerHTML).toBe("<p>live: nothing</p>");
  });

  test("follows a topic once in Strict Mode, and unsubscribes a while after unmounting", async () => {
    await render([createElement(Note, { id: "a", key: 1 }), createElement(Note, { id: "b", key: 2 })]);
    expect(hand.topics.sinks("notes")).toHaveLength(1);
    expect(hand.topics.followed).toHaveLength(1);
    await unmount?.();
    unmount = undefined;
    hand.environment.pass(5_000);
    expect(hand.topics.sinks("notes")).toHaveLength(0);
    expect(hand.environment.timers).toBe(0);
  });

  test("shows another document at once when the key changes", async () => {
    let show: (id: string) => void = () => {};
    function Chosen() {
      const [id, setId] = useState("a");
      show = setId;
      return createElement(Note, { id });
    }
    await render(createElement(Chosen));
    await change(() => hand.topics.replace("notes", { a: { text: "A" }, b: { text: "B" } }));
    await change(() => show("b"));
    expect(element.innerHTML).toBe("<p>live: B</p>");
  });
});

describe("useList", () => {
  test("shows the documents in the order of their keys, filtered and selected", async () => {
    function Notes() {
      const all = useList("notes");
      const open = useList("notes", {
        filter: ({ data }) => data.done !== true,
        select: ({ key, data }) => ({ key, text: data.text }),
      });
      return `${all.items.map(({ key }) => key).join()} / ${open.items.map(({ text }) => text).join()}`;
    }
    await render(createElement(Notes));
    await change(() =>
      hand.topics.replace("notes", { b: { text: "B" }, a: { text: "A" }, c: { text: "C", done: true } }),
    );
    expect(element.innerHTML).toBe("a,b,c / A,B");
    await change(() => hand.topics.set("notes", "b", 2, { text: "B", done: true }));
    expect(element.innerHTML).toBe("a,b,c / A");
  });

  test("does not render for a filtered change, and keeps unchanged objects", async () => {
    const seen: unknown[] = [];
    const results: { items: readonly unknown[] }[] = [];
    function Open() {
      const result = useList("notes", {
        filter: ({ data }) => data.done !== true,
        select: ({ data }) => ({ text: data.text }),
      });
      seen.push(result);
      results.push(result);
      return String(result.items.length);
    }
    await render(createElement(Open));
    await change(() => hand.topics.replace("notes", { a: { text: "A" }, z: { text: "Z", done: true } }));
    const rendered = seen.length;
    await change(() => hand.topics.set("notes", "z", 2, { text: "ZZ", done: true }));
    expect(seen).toHaveLength(rendered);
    const before = results.at(-1)!;
    await change(() => hand.topics.set("notes", "b", 1, { text: "B" }));
    const after = results.at(-1)!;
    expect(after).not.toBe(before);
    expect(after.items).toHaveLength(2);
    expect(after.items[0]).toBe(before.items[0]);
  });
});

describe("useList of a part", () => {
  const part = "notes?project=p1" as const;

  test("follows only the part, keeps its order, and does not render for filtered changes", async () => {
    let rendered = 0;
    function Notes() {
      const { items } = useList("notes", {
        where: { project: "p1" },
        order: "-text",
        filter: { done: false },
        limit: 2,
      });
      rendered++;
      return items.map(({ data }) => data.text).join();
    }
    await render(createElement(Notes));
    expect(hand.topics.followed.map(({ topic }) => topic)).toEqual([part]);
    const note = (text: string, done = false) => ({ text, done, project: "p1" });
    await change(() => hand.topics.replace(part, { a: note("a"), c: note("c"), x: note("x", true) }));
    expect(element.innerHTML).toBe("c,a");
    await change(() => hand.topics.set(part, "b", 1, note("b")));
    expect(element.innerHTML).toBe("c,b");
    const before = rendered;
    await change(() => hand.topics.set(part, "x", 2, note("y", true)));
    expect(rendered).toBe(before);
    await change(() => hand.topics.set(part, "a", 2, note("z")));
    expect(element.innerHTML).toBe("z,c");
  });

  test("follows only the document with `alone`", async () => {
    function Note() {
      return useDoc("notes", "n:1", { alone: true }).data?.text ?? "nothing";
    }
    await render(createElement(Note));
    expect(hand.topics.followed.map(({ topic }) => topic)).toEqual(["notes?doc_key=n%3A1"]);
    await change(() => hand.topics.replace("notes?doc_key=n%3A1", { "n:1": { text: "one" } }));
    expect(element.innerHTML).toBe("one");
  });
});

describe("useConversation", () => {
  function Chat({ id }: { id: string }) {
    const { messages, run, health, send, stop } = useConversation(id);
    Object.assign(actions, { send, stop });
    const lines = messages.map(({ message_id, parts = [], status }) =>
      createElement("p", { key: message_id }, `${parts.map(({ text }) => text).join("")} (${status})`),
    );
    return createElement(
      "div",
      null,
      createElement("i", null, `${health}, ${run ? "running" : "idle"}`),
      ...lines,
    );
  }
  const actions: { send?: (text: string) => Promise<unknown>; stop?: () => Promise<boolean> } = {};

  test("streams, sends and stops, on one channel in Strict Mode", async () => {
    await render(createElement(Chat, { id: "c" }));
    const { connection, http } = hand;
    expect(connection.channels).toHaveLength(1);
    expect(element.innerHTML).toBe("<div><i>connecting, idle</i></div>");
    await change(() => {
      connection.channelNow.join();
      connection.channelNow.frame({ type: "snapshot", messages: [], cursor: "e-0" });
    });
    await change(() => void actions.send!("Hi"));
    expect(element.innerHTML).toBe("<div><i>live, idle</i><p>Hi (sending)</p></div>");
    await change(() => {
      http.last.answer({ conv_id: "c", run_id: "r", cursor: "e-0" }, 202);
      connection.channelNow.events(
        1,
        "r",
        { run_started: {} },
        { message: { message_id: "u", role: "user", text: "Hi" } },
        { text_delta: { message_id: "m", text: "Hel" } },
        { text_delta: { message_id: "m", text: "lo" } },
      );
    });
    expect(element.innerHTML).toBe("<div><i>live, running</i><p>Hi (done)</p><p>Hello (streaming)</p></div>");
    await change(() => connection.channelNow.events(5, "r", { run_stopped: {} }));
    expect(element.innerHTML).toBe("<div><i>live, idle</i><p>Hi (done)</p><p>Hello (stopped)</p></div>");
  });
});

test("all components of a render show the same state, even if it changes meanwhile", async () => {
  const { connection } = hand;
  let begin: () => void = () => {};
  let interrupt = false;
  const pictures: string[] = [];
  const Half = () => {
    const { messages } = useConversation("c");
    return createElement("i", null, messages[0]?.parts?.[0]?.text ?? "");
  };
  const Between = () => {
    if (interrupt) connection.channelNow.events(2, "r", { text_delta: { message_id: "m", text: "b" } });
    interrupt = false;
    return null;
  };
  function Page() {
    const [shown, setShown] = useState(false);
    begin = () => startTransition(() => setShown(true));
    useLayoutEffect(() => void pictures.push(element.innerHTML));
    return shown ? [Half, Between, Half].map((part, key) => createElement(part, { key })) : null;
  }
  const stop = hand.client.conversation("c").subscribe(() => {});
  connection.channelNow.join();
  connection.channelNow.frame({ type: "snapshot", messages: [], cursor: "e-0" });
  connection.channelNow.events(1, "r", { text_delta: { message_id: "m", text: "a" } });
  await render(createElement(Page));
  await change(() => {
    interrupt = true;
    begin();
  });
  expect(interrupt).toBe(false);
  expect(element.innerHTML).toBe("<i>ab</i><i>ab</i>");
  expect(new Set(pictures)).toEqual(new Set(["", "<i>ab</i><i>ab</i>"]));
  stop();
});

describe("useBoard and useConnection", () => {
  test("shows the progress of a correlation", async () => {
    function Progress({ id }: { id?: string }) {
      const { correlation, board } = useBoard(id);
      return `${correlation.data?.status ?? "unknown"} ${typeof board.publish}`;
    }
    await render([createElement(Progress, { key: 1, id: "otters" }), createElement(Progress, { key: 2 })]);
    expect(element.innerHTML).toBe("unknown functionunknown function");
    const document = (status: string) => ({ correlation_id: "otters", status });
    const key = "correlation:otters";
    await change(() => hand.topics.replace("blackboard.correlations", { [key]: document("running") }));
    expect(element.innerHTML).toBe("running functionunknown function");
    await change(() => hand.topics.set("blackboard.correlations", key, 2, document("done")));
    expect(element.innerHTML).toBe("done functionunknown function");
  });

  test("shows the state of the connection, and unsubscribes on unmount", async () => {
    const State = () => useConnection().state;
    await render(createElement(State));
    expect(element.innerHTML).toBe("live");
    await change(() => hand.connection.become({ state: "offline" }));
    expect(element.innerHTML).toBe("offline");
    await unmount?.();
    unmount = undefined;
    expect(hand.connection.listeners).toBe(0);
  });
});

describe("server rendering", () => {
  function Page() {
    const note = useDoc("notes", "a");
    const notes = useList("notes");
    const { messages, health } = useConversation("c");
    const { correlation } = useBoard("x");
    const { state } = useConnection();
    return [note.phase, notes.items.length, messages.length, health, correlation.phase, state].join(" ");
  }

  test("renders without subscribing, and hydrates in the browser without a mismatch", async () => {
    const html = renderToString(inProvider(createElement(Page)));
    expect(html).toBe("loading 0 0 connecting loading idle");
    expect(hand.topics.followed).toEqual([]);
    expect(hand.connection.channels).toEqual([]);
    expect(hand.environment.timers).toBe(0);
    element.innerHTML = html;
    const problems: unknown[] = [];
    const root = await act(async () =>
      hydrateRoot(element, inProvider(createElement(Page)), {
        onRecoverableError: (error) => problems.push(error),
      }),
    );
    unmount = () => act(async () => root.unmount());
    expect(problems).toEqual([]);
    await change(() => hand.topics.replace("notes", { a: { text: "A" } }));
    expect(element.innerHTML).toBe("live 1 0 connecting loading live");
  });
});

test("a hook without a provider throws an error that says what to do", () => {
  const Bare = () => String(useKhala());
  expect(() => renderToString(createElement(Bare))).toThrow("KhalaProvider");
});

test("the hooks of an app have the types of its documents", () => {
  const uses = () => ({ doc: useDoc("notes", "a"), list: useList("notes"), other: useDoc("else", "a") });
  type Uses = ReturnType<typeof uses>;
  expectTypeOf<Uses["doc"]["data"]>().toEqualTypeOf<HandDocuments["notes"] | undefined>();
  expectTypeOf<Uses["list"]["items"][number]["data"]>().toEqualTypeOf<HandDocuments["notes"]>();
  expectTypeOf<Uses["other"]["data"]>().toEqualTypeOf<unknown>();
});

describe("useAppend", () => {
  function Tasks() {
    const { items } = useList("notes");
    const { append, pending } = useAppend("/tasks/v1/tasks");
    const add = () =>
      append("a", { type: "task.added", data: {} }, { document: { topic: "notes", key: "a" } });
    useLayoutEffect(() => {
      press = add;
    });
    return createElement(
      "p",
      null,
      items.map(({ data }) => data.text).join(),
      pending.map(({ id, state }) => ` ${id} ${state}`).join(),
    );
  }
  let press: () => Promise<unknown>;

  test("shows a pending append until its document arrives", async () => {
    await render(createElement(Tasks));
    await change(() => hand.topics.replace("notes", {}));
    await change(() => void press());
    expect(element.innerHTML).toBe("<p> a sending</p>");
    await change(() => hand.http.last.answer({ seq: "1" }, 201));
    expect(element.innerHTML).toBe("<p> a arriving</p>");
    await change(() => hand.topics.set("notes", "a", 1, { text: "here" }));
    expect(element.innerHTML).toBe("<p>here</p>");
  });
});
