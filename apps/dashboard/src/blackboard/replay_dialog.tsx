import { useKhala } from "@khala/client/react";
import { useRef, useState } from "react";
import { asFailure, useAsk } from "../parts/asking.ts";
import { Button } from "../parts/button.tsx";
import { Dialog } from "../parts/dialog.tsx";
import { StateBadge } from "../parts/state_badge.tsx";
import { Failure, type FailureLike } from "../parts/states.tsx";
import { boardWords } from "../strings/blackboard.ts";
import { type DeadLetter, readDeadLetter } from "./board_types.ts";

const words = boardWords.replayDialog;
const PAGE = 1_000;
/** Beyond this a dry run says "more than": counting on would take longer than a person waits. */
const COUNTED = 10_000;
/** Of one request: few enough that a person sees how it goes on, and can stop it. */
const AT_ONCE = 100;

/** What is to be replayed: letters that were chosen, those that fit a filter, or all of an agent. */
export interface ReplayPlan {
  readonly agent: string;
  readonly kind: "chosen" | "filtered" | "all";
  readonly letters: readonly DeadLetter[];
}

type Board = ReturnType<typeof useKhala>["board"];

interface Count {
  readonly open: number;
  readonly before: number;
  readonly isMore: boolean;
}

export interface ReplayDialogProps {
  readonly plan: ReplayPlan;
  readonly onClose: () => void;
  readonly onDone: () => void;
}

/** Says what a replay would run before it runs anything, and afterwards what it did. */
export function ReplayDialog({ plan, onClose, onDone }: ReplayDialogProps) {
  const { board } = useKhala();
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<FailureLike>();
  const [result, setResult] = useState<{ readonly replayed: number; readonly already: number }>();
  const [looked, setLooked] = useState(0);
  const isStopped = useRef(false);
  const close = () => {
    isStopped.current = true;
    onClose();
  };
  const counted = useAsk(`count ${plan.agent} ${plan.kind} ${plan.letters.length}`, async () => {
    if (plan.kind !== "all") return countOf(plan.letters, false);
    const letters: DeadLetter[] = [];
    for await (const page of pagesOf(board, plan.agent)) {
      letters.push(...page);
      if (letters.length >= COUNTED) return countOf(letters, true);
    }
    return countOf(letters, false);
  });
  const count = counted.data;

  const replay = async () => {
    setBusy(true);
    setError(undefined);
    setLooked(0);
    try {
      const total = { replayed: 0, already: 0 };
      for await (const page of plan.kind === "all" ? pagesOf(board, plan.agent) : [plan.letters]) {
        for (const ids of requests(page)) {
          if (isStopped.current) break;
          const { replayed = 0, already_replayed = 0 } = await board.replayAll(plan.agent, { ids });
          total.replayed += replayed;
          total.already += already_replayed;
          setLooked(total.replayed + total.already);
        }
        if (isStopped.current) break;
      }
      if (!isStopped.current) setResult(total);
      onDone();
    } catch (failure) {
      setError(asFailure(failure));
    } finally {
      setBusy(false);
    }
  };

  const title = result ? words.resultTitle : words.title(count?.open ?? plan.letters.length);
  return (
    <Dialog
      open
      onClose={close}
      title={title}
      actions={
        result ? (
          <Button kind="primary" onClick={onClose}>
            {words.close}
          </Button>
        ) : (
          <>
            <Button onClick={close}>{busy ? words.stop : words.cancel}</Button>
            <Button
              kind="primary"
              icon="retry"
              busy={busy}
              disabled={count === undefined || count.open === 0}
              onClick={replay}
            >
              {busy ? words.running : count?.isMore ? words.confirmAll : words.confirm(count?.open ?? 0)}
            </Button>
          </>
        )
      }
    >
      <div className="replay-dialog" aria-live="polite">
        {result ? (
          <StateBadge state="ok" word={words.result(result.replayed, result.already)} />
        ) : counted.error ? (
          <Failure error={counted.error} inline onRetry={counted.again} />
        ) : count === undefined ? (
          <StateBadge state="working" word={words.counting} />
        ) : busy ? (
          <p>
            {count.isMore ? words.soFar(looked) : words.progress(looked, count.open)}
            {!count.isMore && <progress value={looked} max={count.open} aria-label={words.running} />}
          </p>
        ) : (
          <DryRun count={count} plan={plan} />
        )}
        {error && <Failure error={error} inline />}
      </div>
    </Dialog>
  );
}

function DryRun({
  count: { open, before, isMore },
  plan,
}: {
  readonly count: Count;
  readonly plan: ReplayPlan;
}) {
  if (open === 0) return <p>{words.nothing}</p>;
  return (
    <>
      <p className="dry-run">{isMore ? words.atLeast(open) : words.dryRun(open, plan.agent)}</p>
      {before > 0 && <p className="quiet">{words.again(before)}</p>}
      {plan.kind === "filtered" && <p className="quiet">{words.filtered}</p>}
      <p className="quiet">{words.warning}</p>
    </>
  );
}

function countOf(letters: readonly DeadLetter[], isMore: boolean): Count {
  // A record that could not be decoded has no task to run.
  const open = letters.filter(({ replay_id, raw }) => replay_id === "" && raw === "").length;
  return { open, before: letters.filter(({ replay_id }) => replay_id !== "").length, isMore };
}

/** All of an agent, the newest first. What fails again meanwhile is newer than any, and not among them. */
async function* pagesOf(board: Board, agent: string): AsyncGenerator<DeadLetter[]> {
  let next: string | undefined;
  do {
    const page = await board.deadLetters(agent, { limit: PAGE, ...(next !== undefined && { after: next }) });
    yield (page.dead_letters ?? []).map(readDeadLetter);
    next = page.next;
  } while (next !== undefined);
}

function requests(letters: readonly DeadLetter[]): readonly string[][] {
  const ids = letters.filter(({ raw, replay_id }) => raw === "" && replay_id === "").map(({ id }) => id);
  return Array.from({ length: Math.ceil(ids.length / AT_ONCE) }, (_, index) =>
    ids.slice(index * AT_ONCE, (index + 1) * AT_ONCE),
  );
}
