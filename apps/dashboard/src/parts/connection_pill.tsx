import { connectionWords as words } from "../strings/parts.ts";
import { exactTime, timeOfDay } from "./clock.ts";
import { Icon, type IconName } from "./icons.tsx";
import type { State } from "./state_badge.tsx";
import { Tooltip } from "./tooltip.tsx";

/** What is shown of a connection: the client's ConnectionStatus fits. */
export interface ConnectionLike {
  readonly state:
    | "idle"
    | "connecting"
    | "replaying"
    | "live"
    | "stale"
    | "offline"
    | "paused"
    | "unauthorised"
    | "closed";
  readonly since: number;
  readonly attempt: number;
  readonly retryAt?: number;
  /** How many updates are still to come, when it is known. */
  readonly behind?: number;
  readonly error?: { readonly code: string; readonly message: string };
  readonly role: "own" | "leader" | "follower";
}

export interface ConnectionPillProps {
  readonly status: ConnectionLike;
  /** Connects now, or asks for another token. */
  readonly onClick?: () => void;
}

/** The connection as it is, always in sight: live, catching up, offline since, or not allowed and why. */
export function ConnectionPill({ status, onClick }: ConnectionPillProps) {
  const { state, icon, word } = appearance(status);
  return (
    <>
      <Tooltip text={<Explanation status={status} />}>
        <button type="button" className={`pill ${state}`} onClick={onClick} data-state={status.state}>
          {icon === "dot" ? <span className="dot" /> : <Icon name={icon} size={14} />}
          <span className="visually-hidden">{words.label}: </span>
          <span className="pill-word">{word}</span>
        </button>
      </Tooltip>
      <span className="visually-hidden" role="status">
        {word}
      </span>
    </>
  );
}

function appearance({ state, since, error, behind }: ConnectionLike): {
  readonly state: State;
  readonly icon: IconName | "dot";
  readonly word: string;
} {
  if (state === "live") return { state: "ok", icon: "dot", word: words.live };
  if (state === "replaying" || state === "stale")
    return { state: "working", icon: "working", word: behind ? words.behind(behind) : words.catchingUp };
  if (state === "idle" || state === "connecting")
    return { state: "working", icon: "working", word: words.connecting };
  if (state === "offline")
    return { state: "failed", icon: "failed", word: words.offlineSince(timeOfDay(since)) };
  if (state === "unauthorised")
    return {
      state: "failed",
      icon: "lock",
      word: error ? `${words.notAllowed}: ${error.code.replaceAll("_", " ")}` : words.notAllowed,
    };
  if (state === "paused") return { state: "waiting", icon: "pause", word: words.paused };
  return { state: "failed", icon: "failed", word: words.closed };
}

function Explanation({ status }: { readonly status: ConnectionLike }) {
  return (
    <>
      {status.error && <span>{status.error.message} </span>}
      <span>{words.since(exactTime(status.since))} </span>
      {status.attempt > 0 && <span>{words.attempt(status.attempt)} </span>}
      {status.retryAt !== undefined && <span>{words.nextTry(timeOfDay(status.retryAt))} </span>}
      <span>{status.role === "follower" ? words.otherTab : words.ownSocket}</span>
    </>
  );
}
