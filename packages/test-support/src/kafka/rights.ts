import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { ROOT } from "../../../../scripts/run.ts";
import { openPlainAdmin, type PlainAdmin } from "../../../kafka/src/client/plain_admin.ts";
import { eventually } from "../kit/eventually.ts";

/** A right, as a row of the table in docs/protocol/blackboard/kafka_rights.md names it. */
export interface Right {
  readonly who: string;
  readonly kind: keyof typeof KINDS;
  /** With `<agent>` and `<KAFKA_TX_ID>` as placeholders. */
  readonly name: string;
  readonly operation: keyof typeof OPERATIONS;
}

/** The access lists of a cluster. */
export interface AccessLists {
  grant(user: string, rights: readonly Right[]): Promise<void>;
  revoke(user: string, right: Right): Promise<void>;
  close(): Promise<void>;
}

interface AclAdmin extends PlainAdmin {
  createAcls(options: { readonly creations: readonly object[] }): Promise<void>;
  deleteAcls(options: { readonly filters: readonly object[] }): Promise<unknown>;
  describeAcls(options: { readonly filter: object }): Promise<readonly unknown[]>;
}

const KINDS = { topics: 2, groups: 3, "transactional ids": 5 };
const OPERATIONS = { Read: 3, Write: 4, Create: 5, Describe: 8, DescribeConfigs: 10 };
const LITERAL = 3;
const PREFIXED = 4;
const ALLOW = 3;

/** The documented rights, one by one. */
export async function documentedRights(): Promise<Right[]> {
  const text = await readFile(join(ROOT, "docs/protocol/blackboard/kafka_rights.md"), "utf8");
  const rows = text
    .split("\n")
    .filter((line) => line.startsWith("|"))
    .slice(2);
  let who = "";
  return rows.flatMap((row) => {
    const [first, where, what] = row.split("|").slice(1, 4) as [string, string, string];
    who = first.trim() || who;
    const kind = named(KINDS, where.slice(0, where.indexOf("`")).trim());
    const names = [...where.matchAll(/`([^`]+)`/g)].map(([, name]) => name!);
    const operations = what.split(",").map((operation) => named(OPERATIONS, operation.trim()));
    return names.flatMap((name) => operations.map((operation) => ({ who, kind, name, operation })));
  });
}

/** Opens the access lists, for callers that may change them; `names` replace the placeholders in angle brackets. */
export async function openAccessLists(
  kafka: Parameters<typeof openPlainAdmin>[0],
  names: (user: string) => Readonly<Record<string, string>>,
): Promise<AccessLists> {
  const admin = (await openPlainAdmin(kafka)) as AclAdmin;
  const entry = (user: string, { kind, name, operation }: Right) => {
    const given = names(user);
    const full = name.replace(/<[^>]+>/g, (placeholder) => given[placeholder] ?? placeholder);
    const isPrefix = full.endsWith("*");
    return {
      resourceType: KINDS[kind],
      resourceName: isPrefix ? full.slice(0, -1) : full,
      resourcePatternType: isPrefix ? PREFIXED : LITERAL,
      principal: `User:${user}`,
      host: "*",
      operation: OPERATIONS[operation],
      permissionType: ALLOW,
    };
  };
  /** The controller answers before the broker knows; the broker learns of changes in order. */
  const known = (filter: object, there: boolean) =>
    eventually("the broker knows the rights", async () => {
      const found = await admin.describeAcls({ filter });
      return found.length > 0 === there;
    });
  return {
    async grant(user, rights) {
      const creations = rights.map((right) => entry(user, right));
      await admin.createAcls({ creations });
      await known(creations.at(-1)!, true);
    },
    async revoke(user, right) {
      const filter = entry(user, right);
      await admin.deleteAcls({ filters: [filter] });
      await known(filter, false);
    },
    close: () => admin.close(),
  };
}

function named<T extends object>(table: T, name: string): keyof T {
  if (name in table) return name as keyof T;
  throw new Error(`The table of rights says "${name}", and may say ${Object.keys(table).join(", ")}.`);
}
