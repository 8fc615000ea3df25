import { KhalaError, SCOPES, workScope } from "@khala/contracts";
import { ACTIONS, type Action, type ParticipantRole, type Rule } from "./actions.ts";
import type { Caller } from "./viewer.ts";

/** The target that an action's scopes depend on: the topic, the stream's own scope, or the agent. */
export interface Target {
  readonly topic?: string;
  readonly streamScope?: string;
  readonly agent?: string;
}

/** A resource, as far as the decision needs it. */
export interface Resource extends Target {
  readonly org: string;
  readonly owner?: string;
  /** The caller's role, where it takes part in what another one owns. */
  readonly role?: ParticipantRole | null;
  /** The subjects of the org that see it; null or absent for all of them. */
  readonly audience?: readonly string[] | null;
  readonly hiddenFrom?: readonly string[] | null;
  readonly isPublic?: boolean;
}

/** Decides whether the caller may do this to the resource. Every plane and every endpoint asks here. */
export function may(caller: Caller, action: Action, resource: Resource): boolean {
  const rule: Rule = ACTIONS[action];
  if (!neededScopes(rule, resource).some((scope) => caller.scopes.has(scope))) return false;
  if (rule.to === "installation" || holds(caller, rule.everyOrg)) return true;
  if (rule.publicToAll && resource.isPublic) return true;
  if (resource.org !== caller.org) return false;
  if (rule.to === "org" || holds(caller, rule.orgWide)) return true;
  if (rule.to !== "owner") return sees(caller, resource);
  return resource.owner === caller.subject || (!!resource.role && !!rule.roles?.includes(resource.role));
}

/** Throws missing_scope, or forbidden_topic, unless the caller's token allows the action to some resource. */
export function requireScope(caller: Caller, action: Action, target: Target = {}): void {
  if (hasScopeFor(caller, action, target)) return;
  if (target.topic !== undefined) {
    throw new KhalaError(
      "forbidden_topic",
      `The token does not allow the topic ${quote(target.topic)}. Ask for a token whose oa_sync_scopes contain it.`,
    );
  }
  const scopes = neededScopes(ACTIONS[action], target).map(quote).join(" or ");
  throw new KhalaError(
    "missing_scope",
    `This needs the scope ${scopes}. Ask for a token whose oa_sync_scopes contain it.`,
  );
}

/** Whether the token allows the action to some resource. */
export function hasScopeFor(caller: Caller, action: Action, target: Target = {}): boolean {
  const rule: Rule = ACTIONS[action];
  // The topic or agent is only known once the resource is found: `may` decides then.
  if (rule.scopes.includes("<topic>") && target.topic === undefined) return true;
  if (rule.scopes.includes("<agent>") && target.agent === undefined)
    return [...caller.scopes].some((scope) => scope.startsWith(workScope("")));
  return neededScopes(rule, target).some((scope) => caller.scopes.has(scope));
}

/** The org that the caller may do the action in; undefined for all of them. */
export function orgOf(caller: Caller, action: Action): string | undefined {
  const rule: Rule = ACTIONS[action];
  return holds(caller, rule.everyOrg) ? undefined : caller.org;
}

/** Whether the caller may do the action to everything of its org, and not only to its own. */
export function reachesOrg(caller: Caller, action: Action): boolean {
  const rule: Rule = ACTIONS[action];
  return rule.to === "org" || holds(caller, rule.orgWide);
}

const RESERVED: ReadonlySet<string> = new Set(Object.values(SCOPES));

/** Whether a scope is a right, and not the name of a topic. */
export function isReserved(scope: string): boolean {
  return RESERVED.has(scope) || scope.startsWith(workScope(""));
}

/** A missing resource and one the caller may not see get the same error. */
export function notFound(what: string, name: string): KhalaError {
  return new KhalaError("not_found", `There is no ${what} ${quote(name)}, or you may not see it.`);
}

/** The scopes of which one is needed. */
function neededScopes(rule: Rule, { topic, streamScope, agent }: Target): string[] {
  const named: Record<string, string | undefined> = {
    // A scope such as "ops" is a right, never the name of a topic.
    "<topic>": topic !== undefined && !isReserved(topic) ? topic : undefined,
    "<stream>": streamScope ?? SCOPES.runtimeWrite,
    "<agent>": agent && workScope(agent),
  };
  return rule.scopes.flatMap((scope) => (scope in named ? (named[scope] ?? []) : scope));
}

function holds(caller: Caller, scope: string | undefined): boolean {
  return scope !== undefined && caller.scopes.has(scope);
}

function sees({ subject }: Caller, { audience, hiddenFrom }: Resource): boolean {
  return (audience?.includes(subject) ?? true) && !(hiddenFrom?.includes(subject) ?? false);
}

// Names come from the client: quoted, so that they cannot pose as part of the message, and truncated.
function quote(name: string): string {
  return JSON.stringify(name.length > 100 ? `${name.slice(0, 100)}…` : name);
}
