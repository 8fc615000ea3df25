import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { CONV_ID } from "@khala/contracts";
import { afterEach, beforeEach, expect, test } from "vitest";
import { defaultConversation } from "./default_conversation.ts";

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "khala-chat-"));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const tokenOf = (sub: string, org = "demo") =>
  `e30.${Buffer.from(JSON.stringify({ sub, oa_org_id: org })).toString("base64url")}.sig`;
let ids = 0;
const newId = () => `id-${++ids}`;
const conversation = (token: string, url = "http://127.0.0.1:4000", at = folder) =>
  defaultConversation({ folder: at, url, token, newId });

test("keeps one conversation for each person on each server", () => {
  const ada = conversation(tokenOf("ada"));
  expect(ada).toMatchObject({ convId: expect.stringMatching(CONV_ID), isNew: true });
  expect(conversation(tokenOf("ada"))).toEqual({ convId: ada.convId, isNew: false });
  const others = [
    conversation(tokenOf("ben")),
    conversation(tokenOf("ada", "acme")),
    conversation(tokenOf("ada"), "https://khala.example.com"),
    conversation("not a token"),
  ];
  expect(new Set([ada, ...others].map(({ convId }) => convId)).size).toBe(5);
  expect(statSync(join(folder, "chat.json")).mode & 0o077).toBe(0);
});

test("works without remembering when the file is damaged or the folder read-only", () => {
  writeFileSync(join(folder, "chat.json"), "{");
  const { convId } = conversation(tokenOf("ada"));
  expect(conversation(tokenOf("ada")).convId).toBe(convId);
  expect(readFileSync(join(folder, "chat.json"), "utf8")).toContain(convId);
  expect(conversation(tokenOf("ada"), "http://x", join(folder, "chat.json"))).toMatchObject({ isNew: true });
});
