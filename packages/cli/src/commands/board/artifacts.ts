import { SCOPES } from "@khala/contracts";
import type { ArtifactJson, ArtifactListJson } from "@khala/contracts/blackboard/v1";
import { callWithScope, type ServerOptions } from "../../client/tokens.ts";
import { columns, print, truncate } from "../../terminal/terminal.ts";

export interface ArtifactOptions extends ServerOptions {
  readonly type?: string;
  readonly correlation?: string;
  readonly limit?: number;
}

const PATH = "/blackboard/v1/artifacts";
const DEFAULT_LIMIT = 20;

/** `khala artifacts`: the newest artifacts of the blackboard. */
export async function artifacts(options: ArtifactOptions): Promise<void> {
  const { type, correlation, limit = DEFAULT_LIMIT } = options;
  const query = new URLSearchParams({
    limit: String(limit),
    ...(type !== undefined && { type }),
    ...(correlation !== undefined && { correlation_id: correlation }),
  });
  const path = `${PATH}?${query}`;
  const { artifacts = [] } = await callWithScope<ArtifactListJson>(options, SCOPES.blackboardRead, path);
  if (options.json) return artifacts.forEach((artifact) => void print(JSON.stringify(artifact)));
  if (artifacts.length === 0) return print("No matching artifacts among the newest.");
  const rows = artifacts.map(
    ({ id = "", type = "", created_at = "", produced_by = "", correlation_id = "", payload }) => [
      id,
      type,
      created_at,
      produced_by,
      correlation_id,
      JSON.stringify(payload),
    ],
  );
  const table = columns([["ID", "TYPE", "CREATED AT", "BY", "CORRELATION", "PAYLOAD"], ...rows]);
  for (const line of table.split("\n")) print(truncate(line));
}

/** `khala artifacts show`: the latest version of one. */
export async function showArtifact(id: string, options: ServerOptions): Promise<void> {
  const path = `${PATH}/${encodeURIComponent(id)}`;
  const artifact = await callWithScope<ArtifactJson>(options, SCOPES.blackboardRead, path);
  print(JSON.stringify(artifact, null, options.json ? 0 : 2));
}
