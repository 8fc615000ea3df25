import { useKhala } from "@khala/client/react";
import { useFetch } from "../data/fetch.ts";
import { links } from "../router.ts";
import { Fetched } from "../ui/feedback/fetched.tsx";
import { Ago } from "../ui/format/ago.tsx";
import { Id, shortenMiddle } from "../ui/format/id.tsx";
import { plural } from "../ui/format/numbers.ts";
import { Json } from "../ui/json/json.tsx";
import { DetailPanel, Facts, Section, TextLink } from "../ui/panel/detail_panel.tsx";
import { labelOf } from "./artifact_label.ts";
import { type Artifact, readArtifact } from "./board_types.ts";

const MAX_LISTED = 50;
const ID_LENGTH = 20;

/** One artifact: its metadata and its payload. */
export function ArtifactPanel({ id, onClose }: { readonly id: string; readonly onClose: () => void }) {
  const { board } = useKhala();
  const state = useFetch(["artifact", id], async () => readArtifact(await board.artifact(id)));
  return (
    <DetailPanel label="Artifact" title={state.data?.type ?? "Artifact"} onClose={onClose}>
      <Fetched state={state}>{(artifact) => <ArtifactDetails artifact={artifact} />}</Fetched>
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
          ["Id", <Id key="id" value={artifact.id} length={28} />],
          ["Published by", <Producer key="by" by={produced_by} />],
          ["Published", <Ago key="at" at={artifact.created_at} />],
          ["Version", artifact.version],
          correlation_id !== "" && [
            "Correlation",
            <TextLink key="correlation" mono href={links.correlation(correlation_id)}>
              {correlation_id}
            </TextLink>,
          ],
          partition_key !== "" && ["Partition key", <code key="key">{partition_key}</code>],
          tags.length > 0 && ["Tags", tags.join(", ")],
          ["Visible to", artifact.visibility],
          ["Depth", artifact.depth],
          traceId !== undefined && [
            "Trace",
            <TextLink key="trace" mono href={links.trace(traceId)}>
              {traceId.slice(0, 12)}…
            </TextLink>,
          ],
        ]}
      />
      <Section title="Payload">
        <Json value={artifact.payload} label="Payload" open={4} />
      </Section>
    </>
  );
}

/** An agent is a link, a user is a name. */
function Producer({ by }: { readonly by: string }) {
  const [kind = "", ...rest] = by.split(":");
  const name = rest.join(":");
  if (kind !== "agent") return <span>{name === "" ? by : name}</span>;
  return <TextLink href={links.agent(name)}>{name}</TextLink>;
}

/** The payload of an artifact, or a note that this user may not see it. */
export function Payload({ artifact }: { readonly artifact: Artifact }) {
  if (artifact.payload === undefined)
    return (
      <p className="quiet">
        Hidden: only named agents and the publisher can see this artifact. It can still be replayed or
        approved.
      </p>
    );
  return <Json value={artifact.payload} label={artifact.type} />;
}

/** Artifacts as a list of links. */
export function ArtifactList({ artifacts }: { readonly artifacts: readonly Artifact[] }) {
  if (artifacts.length === 0) return <p className="quiet">No recent artifacts</p>;
  return (
    <ul>
      {artifacts.map((artifact) => {
        const { id, type, created_at, correlation_id } = artifact;
        return (
          <li key={id}>
            <a className="artifact-link" href={links.artifact(id)}>
              <strong>{type}</strong>
              <span className="quiet" title={correlation_id || id}>
                {labelOf(artifact) ?? shortenMiddle(correlation_id || id, ID_LENGTH)}
              </span>
              <Ago at={created_at} />
            </a>
          </li>
        );
      })}
    </ul>
  );
}

export interface TypePanelProps {
  readonly type: string;
  /** Newest first. */
  readonly artifacts: readonly Artifact[];
  readonly onClose: () => void;
}

/** The recent artifacts of a type. */
export function TypePanel({ type, artifacts, onClose }: TypePanelProps) {
  const ofType = artifacts.filter((artifact) => artifact.type === type);
  return (
    <DetailPanel label="Type" title={type} onClose={onClose}>
      <Section title={plural(ofType.length, "artifact")}>
        <ArtifactList artifacts={ofType.slice(0, MAX_LISTED)} />
      </Section>
    </DetailPanel>
  );
}
