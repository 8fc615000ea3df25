import { SCOPES } from "@khala/contracts";
import { callServer } from "../api.ts";
import { serverUrl } from "../environment.ts";
import { EXIT, Failure } from "../failure.ts";
import { print } from "../terminal.ts";
import { tokenSource } from "../tokens.ts";
import { readPayload } from "./publish_payload.ts";

export interface PublishOptions {
  readonly url?: string;
  readonly token?: string;
  readonly payload: string;
  readonly id?: string;
  readonly key?: string;
  readonly correlation?: string;
  readonly tag?: readonly string[];
  readonly at?: string;
  readonly json?: boolean;
}

/** `khala publish`: publishes one artifact on the blackboard of a running server. */
export async function publish(type: string, options: PublishOptions): Promise<void> {
  const draft = {
    type,
    payload: await readPayload(options.payload),
    ...(options.id !== undefined && { id: options.id }),
    ...(options.key !== undefined && { partition_key: options.key }),
    ...(options.correlation !== undefined && { correlation_id: options.correlation }),
    ...(options.tag && { tags: options.tag }),
    ...(options.at !== undefined && { not_before: readTime(options.at) }),
  };
  const url = serverUrl(options.url);
  const token = await tokenSource(url, options.token, [SCOPES.blackboardWrite]).get();
  const path = "/blackboard/v1/artifacts";
  const { artifacts } = await callServer<{ artifacts: [{ id: string; status: string }] }>(url, path, {
    body: draft,
    token,
  });
  const [published] = artifacts;
  print(options.json ? JSON.stringify(published) : `${type} ${published.id} is ${said(published.status)}.`);
}

function said(status: string): string {
  return status === "duplicate" ? "there already" : status;
}

function readTime(text: string): string {
  const time = Date.parse(text);
  if (!Number.isNaN(time)) return new Date(time).toISOString();
  throw new Failure(`"${text}" is no time. Write it such as 2026-12-24T18:00:00Z.`, EXIT.usage);
}
