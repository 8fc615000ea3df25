import { useKhala } from "@khala/client/react";
import { useFetch } from "../data/fetch.ts";
import { completeAll } from "../data/wire.ts";
import { links } from "../router.ts";
import { Icon } from "../ui/controls/icons.tsx";
import { Failure } from "../ui/feedback/notices.tsx";
import { Ago } from "../ui/format/ago.tsx";
import { Id } from "../ui/format/id.tsx";
import { TextLink } from "../ui/panel/detail_panel.tsx";
import { failedText } from "./topics.tsx";

const EVERY_MS = 5_000;
/** The streams of all topics are listed together. */
const LIMIT = 1_000;
const SHOWN = 5;
const STREAM = { topic: "", kind: "", stream_id: "", seq: "", position: "", error: "", failed_at: "" };

/** The streams that the model of a topic failed at, each with the event and what the model threw. */
export function FailedStreams({ topic, failed }: { readonly topic: string; readonly failed: number }) {
  const { ops } = useKhala();
  const state = useFetch(
    ["failed-streams"],
    async () => completeAll(STREAM, (await ops.failedStreams({ limit: LIMIT })).streams),
    EVERY_MS,
  );
  const streams = state.data?.filter((stream) => stream.topic === topic).slice(0, SHOWN) ?? [];
  return (
    <section className="failed-streams" aria-label="Streams set aside">
      <p>
        <Icon name="failed" size={14} /> <strong>{failedText(failed)}</strong>{" "}
        <TextLink href={links.docs("runbooks/BROKEN_PROJECTION.md")}>Runbook</TextLink>
      </p>
      {state.error && <Failure error={state.error} inline />}
      <ul>
        {streams.map(({ kind, stream_id, seq, position, error, failed_at }) => (
          <li key={`${kind} ${stream_id}`}>
            <p className="failed-stream-error">{error}</p>
            <p className="failed-stream-facts">
              <span>
                {kind} <Id value={stream_id} length={22} />
              </span>
              <span>
                event {seq} of the stream, position {position}
              </span>
              <Ago at={failed_at} />
            </p>
          </li>
        ))}
      </ul>
      {failed > streams.length && streams.length > 0 && (
        <p className="quiet">The oldest {streams.length} of your org are shown.</p>
      )}
    </section>
  );
}
