import { expect, test } from "vitest";
import type { Agent } from "../board_types.ts";
import { flowGraph, flowShape } from "./flow_graph.ts";

const agent = (name: string, ...consumes: string[]): Agent => ({
  name,
  consumes,
  state: "running",
  waiting: 0,
  running: 0,
  done: 0,
  retried: 0,
  dead: 0,
  published: {},
});

const made = (type: string, produced_by: string) => ({ type, produced_by });

test("draws edges from what agents consume, with the server's totals, and from publishers", () => {
  const { edges } = flowGraph(
    [
      { ...agent("writer", "Topic"), done: 700 },
      { ...agent("reviewer", "Draft"), published: { Review: "5000000000" } },
    ],
    [made("Topic", "user:ada"), made("Topic", "user:bob"), made("Draft", "agent:writer")],
  );
  expect(edges.map(({ from, to, done }) => [from, to, done])).toEqual(
    expect.arrayContaining([
      ["publisher", "type:Topic", undefined],
      ["type:Topic", "agent:writer", 700],
      ["agent:writer", "type:Draft", undefined],
      ["type:Draft", "agent:reviewer", 0],
      ["agent:reviewer", "type:Review", 5_000_000_000],
    ]),
  );
  expect(edges).toHaveLength(5);
});

test("does not attribute the total of an agent of several types to one of them", () => {
  const { edges } = flowGraph([{ ...agent("publisher", "Draft", "Review"), done: 9 }], []);
  expect(edges.map(({ done }) => done)).toEqual([undefined, undefined]);
});

test("shows a consumed type before its first artifact", () => {
  const { nodes } = flowGraph([agent("writer", "Topic")], []);
  expect(nodes).toEqual([
    { kind: "type", id: "type:Topic", name: "Topic" },
    { kind: "agent", id: "agent:writer", name: "writer", agent: agent("writer", "Topic") },
  ]);
});

test("shows an agent of another server by its outputs", () => {
  const { nodes } = flowGraph([], [made("Draft", "agent:elsewhere")]);
  expect(nodes).toContainEqual({ kind: "agent", id: "agent:elsewhere", name: "elsewhere" });
});

test("keeps the layout when only numbers change", () => {
  const before = flowGraph([agent("writer", "Topic")], [made("Topic", "user:ada")]);
  const after = flowGraph(
    [{ ...agent("writer", "Topic"), done: 9 }],
    [made("Topic", "user:ada"), made("Topic", "user:eve")],
  );
  expect(flowShape(after)).toBe(flowShape(before));
});
