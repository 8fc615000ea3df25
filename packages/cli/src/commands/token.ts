import { SCOPES } from "@khala/contracts";
import type { SettingOptions } from "../environment.ts";
import { DEMO_TOPICS, DEV } from "../names.ts";
import { readSettings } from "../settings.ts";
import { note, print } from "../terminal.ts";
import { askForToken, type Minted, type TokenWish } from "../tokens.ts";

export interface TokenOptions extends SettingOptions {
  readonly sub?: string;
  readonly org?: string;
  readonly scope?: readonly string[];
  readonly ttl?: number;
  readonly url?: string;
  readonly app?: string;
  readonly json?: boolean;
}

/** `khala token`: prints a token, and nothing else on the output. */
export async function token(options: TokenOptions): Promise<void> {
  const wish: TokenWish = {
    sub: options.sub ?? DEV.sub,
    org: options.org ?? DEV.org,
    scopes: options.scope ?? (await everyScope(options.app)),
    ...(options.ttl !== undefined && { ttl: options.ttl }),
  };
  const minted = options.url ? await askForToken(options.url, wish) : await mintLocally(options, wish);
  print(options.json ? JSON.stringify(minted) : minted.token);
  if (!options.json && process.stdout.isTTY)
    note(`For "${wish.sub}" of "${wish.org}", until ${minted.expires_at}: ${wish.scopes.join(" ")}`);
}

async function mintLocally(options: TokenOptions, wish: TokenWish): Promise<Minted> {
  const [config, { mintHere }] = await Promise.all([readSettings(options), import("../mint.ts")]);
  return mintHere(config, wish);
}

/** What a developer wants: to see every topic, to append, and to operate. */
async function everyScope(app: string | undefined): Promise<string[]> {
  if (!app) return [...DEMO_TOPICS, ...Object.values(SCOPES)];
  const { models, streams } = await (await import("../app_file.ts")).loadApp(app);
  return [
    ...models.all.map(({ topic }) => topic),
    ...new Set([...streams.map(({ scope }) => scope), ...Object.values(SCOPES)]),
  ];
}
