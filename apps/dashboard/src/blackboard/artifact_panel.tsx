import { useKhala } from "@khala/client/react";
import { Ago } from "../parts/ago.tsx";
import { Answered } from "../parts/answered.tsx";
import { useAsk } from "../parts/asking.ts";
import { DetailPanel, Facts, Section } from "../parts/detail_panel.tsx";
import { Id } from "../parts/id.tsx";
import { Json } from "../parts/json.tsx";
import { links } from "../router.ts";
import { boardWords } from "../strings/blackboard.ts";
import { type Artifact, readArtifact } from "./board_types.ts";

const words = boardWords.artifact;

/** One artifact: what it is, where it came from, what it says. */
export function ArtifactPanel({ id, onClose }: { readonly id: string; readonly onClose: () => void }) {
  const { board } = useKhala();
  const asked = useAsk(`artifact ${id}`, async () => readArtifact(await board.artifact(id)));
  return (
    <DetailPanel label={words.title} title={asked.data?.type ?? words.title} onClose={onClose}>
      <Answered asked={asked}>{(artifact) => <ArtifactDetails artifact={artifact} />}</Answered>
    </DetailPanel>
  );
}

function ArtifactDetails({ artifact }: { readonly artifact: Artifact }) {
  const { correlation_id, partition_key, tags, produced_by, traceparent } = artifact;
  const traceId = traceparent.split("-")[1];
  return (
    <>
      <Facts
        facts={[
          { name: words.id, value: <Id value={artifact.id} length={28} /> },
          { name: words.by, value: <Producer by={produced_by} /> },
          { name: words.at, value: <Ago at={artifact.created_at} /> },
          { name: words.version, value: artifact.version },
          correlation_id !== "" && {
            name: words.correlation,
            value: (
              <a className="text-link mono" href={links.correlation(correlation_id)}>
                {correlation_id}
              </a>
            ),
          },
          partition_key !== "" && { name: words.partition, value: <code>{partition_key}</code> },
          tags.length > 0 && { name: words.tags, value: tags.join(", ") },
          { name: words.visibility, value: artifact.visibility },
          { name: words.depth, value: artifact.depth },
          traceId !== undefined && {
            name: words.trace,
            value: (
              <a className="text-link mono" href={links.trace(traceId)}>
                {traceId.slice(0, 12)}…
              </a>
            ),
          },
        ]}
      />
      <Section title={words.payload}>
        <Json value={artifact.payload} label={words.payload} open={4} />
      </Section>
    </>
  );
}

/** Who published something: an agent is a link, a person is a name. */
function Producer({ by }: { readonly by: string }) {
  const [kind = "", ...rest] = by.split(":");
  const name = rest.join(":");
  if (kind !== "agent") return <span>{name === "" ? by : name}</span>;
  return (
    <a className="text-link" href={links.agent(name)}>
      {name}
    </a>
  );
}
