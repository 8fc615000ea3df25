import { useKhala } from "@khala/client/react";
import { useMutation } from "@tanstack/react-query";
import { useRef, useState } from "react";
import { useFetch } from "../../data/fetch.ts";
import { Button } from "../../ui/controls/button.tsx";
import { Dialog } from "../../ui/controls/dialog.tsx";
import { Failure } from "../../ui/feedback/notices.tsx";
import { StateBadge } from "../../ui/feedback/state_badge.tsx";
import { countText, plural } from "../../ui/format/numbers.ts";
import { type DeadLetter, readDeadLetter } from "../board_types.ts";

const PAGE = 1_000;
/** Beyond this the dialog says "more than": counting all would take too long. */
const MAX_COUNTED = 10_000;
/** Per request: few enough to show progress, and to stop in between. */
const BATCH = 100;

/** What to replay: selected letters, those that match the filter, or all of an agent. */
export interface ReplayPlan {
  readonly agent: string;
  readonly kind: "selected" | "filtered" | "all";
  readonly letters: readonly DeadLetter[];
}

type Board = ReturnType<typeof useKhala>["board"];

interface Count {
  readonly open: number;
  readonly replayed: number;
  readonly isMore: boolean;
}

export interface ReplayDialogProps {
  readonly plan: ReplayPlan;
  readonly onClose: () => void;
  readonly onDone: () => void;
}

/** Says what a replay will run before it runs anything, and afterwards what it did. */
export function ReplayDialog({ plan, onClose, onDone }: ReplayDialogProps) {
  const { board } = useKhala();
  const [progress, setProgress] = useState(0);
  const isStopped = useRef(false);
  const close = () => {
    isStopped.current = true;
    onClose();
  };
  // Counted again each time that the dialog opens.
  const [opened] = useState(() => Date.now());
  const counted = useFetch(["replay-count", plan.agent, opened], () => countLetters(board, plan));
  const count = counted.data;
  const replay = useMutation({
    mutationFn: async () => {
      const total = { replayed: 0, already: 0 };
      for await (const page of plan.kind === "all" ? pagesOf(board, plan.agent) : [plan.letters])
        for (const ids of batchesOf(page)) {
          if (isStopped.current) return total;
          const { replayed = 0, already_replayed = 0 } = await board.replayAll(plan.agent, { ids });
          total.replayed += replayed;
          total.already += already_replayed;
          setProgress(total.replayed + total.already);
        }
      return total;
    },
    onMutate: () => setProgress(0),
    onSuccess: onDone,
  });
  const busy = replay.isPending;
  const result = replay.data;

  return (
    <Dialog
      onClose={close}
      title={result ? "Replayed" : `Replay ${plural(count?.open ?? plan.letters.length, "dead letter")}?`}
      actions={
        result ? (
          <Button kind="primary" onClick={onClose}>
            Close
          </Button>
        ) : (
          <>
            <Button onClick={close}>{busy ? "Stop" : "Cancel"}</Button>
            <Button
              kind="primary"
              icon="retry"
              busy={busy}
              disabled={count === undefined || count.open === 0}
              onClick={() => replay.mutate()}
            >
              {busy ? "Replaying…" : count?.isMore ? "Replay all" : `Replay ${countText(count?.open ?? 0)}`}
            </Button>
          </>
        )
      }
    >
      <div className="replay-dialog" aria-live="polite">
        {result ? (
          <StateBadge
            state="ok"
            word={`${plural(result.replayed, "dead letter")} replayed${
              result.already === 0 ? "" : `, ${countText(result.already)} already replayed before`
            }.`}
          />
        ) : counted.error ? (
          <Failure error={counted.error} inline onRetry={counted.refetch} />
        ) : count === undefined ? (
          <StateBadge state="working" word="Counting…" />
        ) : busy ? (
          <p>
            {countText(progress)}{" "}
            {count.isMore ? "replayed so far." : `of ${countText(count.open)} replayed.`}
            {!count.isMore && <progress value={progress} max={count.open} aria-label="Replaying…" />}
          </p>
        ) : (
          <Preview count={count} plan={plan} />
        )}
        {replay.error && <Failure error={replay.error} inline />}
      </div>
    </Dialog>
  );
}

function Preview({ count, plan }: { readonly count: Count; readonly plan: ReplayPlan }) {
  const { open, replayed, isMore } = count;
  if (open === 0) return <p>Nothing to replay: all of them were replayed before.</p>;
  return (
    <>
      <p className="dry-run">
        {isMore ? `More than ${countText(open)} tasks` : plural(open, "task")} of {plan.agent} will run again.
      </p>
      {replayed > 0 && <p className="quiet">{countText(replayed)} were replayed before and are skipped.</p>}
      {plan.kind === "filtered" && <p className="quiet">Only loaded dead letters that match the filter.</p>}
      <p className="quiet">
        Each task runs once, with its own idempotency key. Side effects of earlier attempts are not undone.
      </p>
    </>
  );
}

async function countLetters(board: Board, { kind, agent, letters }: ReplayPlan): Promise<Count> {
  if (kind !== "all") return countOf(letters, false);
  const all: DeadLetter[] = [];
  for await (const page of pagesOf(board, agent)) {
    all.push(...page);
    if (all.length >= MAX_COUNTED) return countOf(all, true);
  }
  return countOf(all, false);
}

/** A letter whose record could not be decoded has no task to run. */
const isOpen = ({ replay_id, raw }: DeadLetter) => replay_id === "" && raw === "";

function countOf(letters: readonly DeadLetter[], isMore: boolean): Count {
  const replayed = letters.filter(({ replay_id }) => replay_id !== "").length;
  return { open: letters.filter(isOpen).length, replayed, isMore };
}

/** All letters of an agent, newest first. Tasks that fail again meanwhile are newer, and not among them. */
async function* pagesOf(board: Board, agent: string): AsyncGenerator<DeadLetter[]> {
  let next: string | undefined;
  do {
    const page = await board.deadLetters(agent, { limit: PAGE, ...(next !== undefined && { after: next }) });
    yield (page.dead_letters ?? []).map(readDeadLetter);
    next = page.next;
  } while (next !== undefined);
}

function batchesOf(letters: readonly DeadLetter[]): readonly string[][] {
  const ids = letters.filter(isOpen).map(({ id }) => id);
  return Array.from({ length: Math.ceil(ids.length / BATCH) }, (_, index) =>
    ids.slice(index * BATCH, (index + 1) * BATCH),
  );
}
