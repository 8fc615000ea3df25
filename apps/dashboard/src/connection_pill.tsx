import type { useConnection } from "@khala/client/react";
import { Icon, type IconName } from "./ui/controls/icons.tsx";
import { Tooltip } from "./ui/controls/tooltip.tsx";
import type { State } from "./ui/feedback/state_badge.tsx";
import { exactTime, timeOfDay } from "./ui/format/ago.tsx";
import { countText, plural } from "./ui/format/numbers.ts";

type ConnectionStatus = ReturnType<typeof useConnection>;

export interface ConnectionPillProps {
  readonly status: ConnectionStatus;
  /** Connects now, or asks for another token. */
  readonly onClick: () => void;
}

/** The state of the connection: live, catching up, offline since when, or not allowed and why. */
export function ConnectionPill({ status, onClick }: ConnectionPillProps) {
  const [state, icon, word] = appearance(status);
  return (
    <>
      <Tooltip text={<Explanation status={status} />}>
        <button type="button" className={`pill ${state}`} onClick={onClick} data-state={status.state}>
          {icon === "dot" ? <span className="dot" /> : <Icon name={icon} size={14} />}
          <span className="visually-hidden">Connection: </span>
          <span className="pill-word">{word}</span>
        </button>
      </Tooltip>
      <span className="visually-hidden" role="status">
        {word}
      </span>
    </>
  );
}

function appearance(status: ConnectionStatus): [State, IconName | "dot", word: string] {
  const { state, since, error, behind } = status;
  switch (state) {
    case "live":
      return ["ok", "dot", "Live"];
    case "replaying":
    case "stale":
      return ["working", "working", behind ? `Catching up (${countText(behind)} behind)` : "Catching up"];
    case "idle":
    case "connecting":
      return ["working", "working", "Connecting"];
    case "offline":
      return ["failed", "failed", `Offline since ${timeOfDay(since)}`];
    case "unauthorised":
      return ["failed", "lock", error ? `Not allowed: ${error.code.replaceAll("_", " ")}` : "Not allowed"];
    case "paused":
      return ["waiting", "pause", "Paused"];
    default:
      return ["failed", "failed", "Closed"];
  }
}

function Explanation({ status }: { readonly status: ConnectionStatus }) {
  return (
    <>
      {status.error && <span>{status.error.message} </span>}
      <span>Since {exactTime(status.since)}. </span>
      {status.attempt > 0 && <span>{plural(status.attempt, "attempt")} so far. </span>}
      {status.retryAt !== undefined && <span>Next attempt at {timeOfDay(status.retryAt)}. </span>}
      <span>
        {status.role === "follower" ? "Another tab holds the socket." : "This tab holds the socket."}
      </span>
    </>
  );
}
