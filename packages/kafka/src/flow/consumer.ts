import type { Consumer, Context, Service } from "@khala/server/blackboard";
import { AgentSession, type SessionOptions } from "./agent_session.ts";
import { supervise } from "./supervised.ts";

/** An agent's work in this process. */
export interface AgentWork extends Service {
  readonly agent: string;
  /** Tasks under way. */
  readonly running: number;
  /** Tasks that are settled, and not behind the committed offset yet. */
  readonly ahead: number;
}

/** Works on an agent's tasks until it is stopped. */
export function consumeTasks(context: Context, options: SessionOptions, consumer: Consumer): AgentWork {
  let session: AgentSession | undefined;
  const service = supervise(context, `agent ${consumer.agent}`, async (onFailure) => {
    const next = new AgentSession(context, options, consumer, onFailure);
    session = next;
    await next.start();
    return next;
  });
  return {
    agent: consumer.agent,
    get running() {
      return session?.running ?? 0;
    },
    get ahead() {
      return session?.ahead ?? 0;
    },
    stop: () => service.stop(),
  };
}
