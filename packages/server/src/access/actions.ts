import { SCOPES } from "@khala/contracts";

/** A participant's rights on another subject's conversation: a member reads and writes, a viewer reads. */
export type ParticipantRole = "member" | "viewer";

/** The callers who may take an action, and the resources it applies to. */
export interface Rule {
  /** A token needs one of these. `<topic>`, `<stream>` and `<agent>` stand for the scope that the resource itself names. */
  readonly scopes: readonly string[];
  /**
   * The caller's relation to the resource: a member of its org, its owner, or one of its audience. A resource of the
   * installation belongs to no org, so the scope alone decides.
   */
  readonly to: "org" | "owner" | "audience" | "installation";
  /** Participants with one of these roles may do it as the owner may. */
  readonly roles?: readonly ParticipantRole[];
  /** A token with this scope may do it to everything of its org. */
  readonly orgWide?: string;
  /** A token with this scope may do it in every org. */
  readonly everyOrg?: string;
  /** Public resources are for the callers of every org. */
  readonly publicToAll?: true;
  /** Whether the audit log records it. */
  readonly audited?: true;
}

/** The scope of the issuer key. No token carries it: the issuer refuses to mint it. */
export const ISSUER = "issuer";

const stream = {
  scopes: ["<stream>", SCOPES.runtimeService],
  to: "owner",
  orgWide: SCOPES.runtimeService,
} as const;
const chat = { scopes: [SCOPES.chat, SCOPES.chatService], to: "owner", orgWide: SCOPES.chatService } as const;
const work = { scopes: ["<agent>", SCOPES.blackboardWork], to: "org", everyOrg: SCOPES.platform } as const;

/** Every action on every plane. Each route and each event of a channel names one. */
export const ACTIONS = {
  // A stream that does not exist yet is started by its first event, and then is its actor's.
  "stream.append": stream,
  "stream.read": stream,
  "document.read": { scopes: ["<topic>"], to: "audience" },

  "conversation.read": { ...chat, roles: ["member", "viewer"] },
  "conversation.write": { ...chat, roles: ["member"] },
  // A tool call that a run waits for: a person approves it, or a client executes it.
  "tool_call.decide": { ...chat, roles: ["member"], audited: true },
  // Participants.
  "conversation.manage": { ...chat, audited: true },
  // A queued message, whose owner is its author.
  "queued_message.edit": chat,
  "conversation.delete": { ...chat, audited: true },
  "durable_stream.read": chat,
  "durable_stream.write": chat,
  "durable_stream.delete": { ...chat, audited: true },

  "artifact.publish": { scopes: [SCOPES.blackboardWrite], to: "org" },
  // A new version hides the one before it, so only those who can read that one may publish it.
  "artifact.replace": { scopes: [SCOPES.blackboardWrite], to: "audience" },
  "artifact.read": { scopes: [SCOPES.blackboardRead], to: "audience", publicToAll: true },
  // Agents work for every org: an org sees its own tasks, and the platform those of all.
  "board.read": { scopes: [SCOPES.blackboardRead], to: "org", everyOrg: SCOPES.platform },
  "correlation.read": { scopes: [SCOPES.blackboardRead], to: "org" },
  "correlation.control": {
    scopes: [SCOPES.blackboardWrite, SCOPES.ops],
    to: "owner",
    orgWide: SCOPES.ops,
    audited: true,
  },
  // The inbox: what the caller may see of conversations and of the board is decided for each.
  "approvals.list": { scopes: [SCOPES.chat, SCOPES.chatService, SCOPES.blackboardRead], to: "org" },
  "approval.read": { scopes: [SCOPES.blackboardRead], to: "org" },
  "approval.decide": { scopes: [SCOPES.blackboardWrite], to: "org", audited: true },
  "dead_letter.read": { scopes: [SCOPES.blackboardRead], to: "org" },
  "dead_letter.replay": { scopes: [SCOPES.blackboardWrite], to: "org", audited: true },
  "task.work": work,
  // An agent works for every org.
  "agent.control": { scopes: [SCOPES.platform], to: "installation", audited: true },

  // Everybody with a token: each tool and each resource asks for what it needs.
  "mcp.use": { scopes: ["<topic>"], to: "org" },

  "token.mint": { scopes: [ISSUER], to: "installation", audited: true },
  "token.revoke": {
    scopes: [SCOPES.ops, SCOPES.platform],
    to: "org",
    everyOrg: SCOPES.platform,
    audited: true,
  },
  // Removes what a subject left behind. It cannot be undone.
  "subject.erase": {
    scopes: [SCOPES.ops, SCOPES.platform],
    to: "org",
    everyOrg: SCOPES.platform,
    audited: true,
  },
  "audit.read": { scopes: [SCOPES.ops, SCOPES.platform], to: "org", everyOrg: SCOPES.platform },
  "quota.read": { scopes: [SCOPES.ops, SCOPES.platform], to: "org", everyOrg: SCOPES.platform },
  // An org's own sockets, conversations, traces and documents, for its operator.
  "org.inspect": { scopes: [SCOPES.ops], to: "org" },
  // Streams that a projection has set aside, with what the model threw.
  "failed_stream.read": { scopes: [SCOPES.ops, SCOPES.platform], to: "org", everyOrg: SCOPES.platform },
  // Items that the board set aside for good: the error and the ids, not the payload.
  "set_aside.read": { scopes: [SCOPES.ops, SCOPES.platform], to: "org", everyOrg: SCOPES.platform },
  "set_aside.control": {
    scopes: [SCOPES.ops, SCOPES.platform],
    to: "org",
    everyOrg: SCOPES.platform,
    audited: true,
  },
  // Figures of the whole server: they name no org and no id.
  "server.observe": { scopes: [SCOPES.ops, SCOPES.platform], to: "installation" },
  "server.inspect": { scopes: [SCOPES.platform], to: "installation" },
  "mirror.compare": { scopes: [SCOPES.platform], to: "installation", audited: true },
} as const satisfies Record<string, Rule>;

/** The name of an action. */
export type Action = keyof typeof ACTIONS;
