import { type App, type Config, type Khala, sampleOf } from "@khala/server";
import { DEV } from "../client/tokens.ts";
import { COMMAND, IN_REPOSITORY } from "../environment.ts";
import { paint, print } from "../terminal/terminal.ts";

export interface BannerOptions {
  readonly khala: Khala;
  readonly app: App;
  readonly config: Config;
  /** Undefined when this server has public keys only. */
  readonly token: { readonly token: string; readonly expires_at: string } | undefined;
  /** Time from the start of the command until the server was ready. */
  readonly seconds: number;
  /** Whether the address shows the dashboard. */
  readonly page: boolean;
}

/** Prints where the server is, and commands to try. Every line works when it is pasted. */
export function banner({ khala, app, config, token, seconds, page }: BannerOptions): void {
  const { url } = khala;
  const store = config.DATABASE_URL ? "PostgreSQL of DATABASE_URL" : `PostgreSQL in ${config.KHALA_DATA_DIR}`;
  print(
    `${paint(["bold", "green"], "Khala is ready")} at ${paint("bold", url)} (${store}, ${seconds.toFixed(1)} s)`,
  );
  if (page) print("Open it in a browser for the dashboard.");
  print("");
  if (!token) {
    print("This server cannot mint tokens: KHALA_AUTH_* has public keys only.");
    return;
  }
  const minutes = Math.round(config.KHALA_AUTH_MAX_TTL_S / 60);
  print(
    `A token for "${DEV.sub}" of the org "${DEV.org}", valid for ${minutes} minutes. Get another with \`${COMMAND} token\`:`,
  );
  print(`  export TOKEN=${token.token}`);
  print("");
  const sections = sectionsOf(url, app);
  for (const { title, lines } of sections) {
    print(title);
    for (const line of lines) print(`  ${line}`);
    print("");
  }
  if (sections.length === 0) {
    print("The app is empty: add models, an engine or agents to defineApp.");
    print("");
  }
  const next = IN_REPOSITORY ? "Next: docs/GETTING_STARTED.md." : `\`${COMMAND} --help\` lists the commands.`;
  print(paint("dim", `Ctrl-C stops it. ${next}`));
}

const AUTH = '-H "Authorization: Bearer $TOKEN"';
const JSON_BODY = "-H 'Content-Type: application/json'";

/** Commands that show one plane of an app. */
interface Section {
  readonly title: string;
  readonly lines: readonly string[];
}

/** A section for each plane that the app uses. */
export function sectionsOf(
  url: string,
  app: Pick<App, "models" | "engine" | "agents" | "schemas">,
): Section[] {
  return [sync(url, app), app.engine && chat(url), work(url, app)].filter((section) => section !== undefined);
}

function sync(url: string, { models }: Pick<App, "models">): Section | undefined {
  for (const model of models.all) {
    // The events of some models come from the server itself.
    const stream = model.streams.find(({ path }) => path !== undefined);
    const [event] = Object.entries(stream?.events ?? {});
    if (!stream || !event) continue;
    const [type, schema] = event;
    const follow = [
      `curl -s ${url}/sync/v1/list/${model.topic} ${AUTH}`,
      `${COMMAND} tail ${model.topic} --url ${url}`,
    ];
    const data = sampleOf(schema);
    if (data === undefined)
      return { title: "Read the documents of a topic, and follow it live:", lines: follow };
    const body = JSON.stringify({ events: [{ event_id: "1", type, data }] });
    return {
      title: "Append an event, read its document, and follow the topic live:",
      lines: [`curl -s ${url}${stream.path}/hello/events ${AUTH} ${JSON_BODY} -d '${body}'`, ...follow],
    };
  }
  return undefined;
}

function chat(url: string): Section {
  const body = JSON.stringify({ conv_id: "hello", message: "Hello" });
  return {
    title: "Send a message to the engine, and read the conversation:",
    lines: [`curl -s ${url}/chat ${AUTH} ${JSON_BODY} -d '${body}'`, `curl -s ${url}/chat/hello ${AUTH}`],
  };
}

function work(url: string, { agents, schemas }: Pick<App, "agents" | "schemas">): Section | undefined {
  const type = agents[0]?.consumes[0];
  if (type === undefined) return undefined;
  const schema = schemas[type];
  const payload = schema ? sampleOf(schema) : { topic: "Otters" };
  if (payload === undefined) return undefined;
  const body = JSON.stringify({ type, payload });
  const path = `${url}/blackboard/v1/artifacts`;
  return {
    title: "Publish an artifact, and list the artifacts that agents made from it:",
    lines: [`curl -s ${path} ${AUTH} ${JSON_BODY} -d '${body}'`, `curl -s ${path} ${AUTH}`],
  };
}
