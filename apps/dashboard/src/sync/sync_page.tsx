import { useKhala } from "@khala/client/react";
import { type FetchState, useFetch } from "../data/fetch.ts";
import { hrefTo, setParams, useParam } from "../router.ts";
import { Icon } from "../ui/controls/icons.tsx";
import { Tabs } from "../ui/controls/tabs.tsx";
import { Fetched } from "../ui/feedback/fetched.tsx";
import { WithPanel } from "../ui/panel/detail_panel.tsx";
import { Clients } from "./clients.tsx";
import { DocumentPanel } from "./document_panel.tsx";
import { Documents } from "./documents.tsx";
import { FailedStreams } from "./failed_streams.tsx";
import { Parity } from "./parity.tsx";
import { readTopic, type Topic } from "./sync_types.ts";
import { TopicFigures, Topics } from "./topics.tsx";
import "./sync.css";

const EVERY_MS = 2_000;
const NO_TOPICS: readonly Topic[] = [];

/** The Sync page: topics, their documents, their clients, and parity. */
export default function SyncPage() {
  const { ops } = useKhala();
  const [tab = "topics"] = useParam("tab");
  const [topic] = useParam("topic");
  const topics = useFetch(
    ["topics"],
    async () => (await ops.topics()).topics?.map(readTopic) ?? [],
    EVERY_MS,
  );
  return (
    <Tabs
      label="Sync views"
      selected={tab}
      onSelect={(id) =>
        setParams({
          tab: id === "topics" ? "" : id,
          topic: "",
          doc: "",
          q: "",
          sort: "",
          view: "",
          version: "",
        })
      }
      tabs={[
        {
          id: "topics",
          label: "Topics",
          content:
            topic === undefined ? (
              <Fetched state={topics}>{(data) => <Topics topics={data} />}</Fetched>
            ) : (
              <TopicView name={topic} topics={topics} />
            ),
        },
        { id: "clients", label: "Clients", content: <Clients topics={topics.data ?? NO_TOPICS} /> },
        { id: "parity", label: "Parity", content: <Parity /> },
      ]}
    />
  );
}

interface TopicViewProps {
  readonly name: string;
  readonly topics: FetchState<readonly Topic[]>;
}

/** The documents of one topic, with its figures above and the selected document beside. */
function TopicView({ name, topics }: TopicViewProps) {
  const [doc] = useParam("doc");
  const topic = topics.data?.find((one) => one.topic === name);
  const close = () => setParams({ doc: "", view: "", version: "" });
  return (
    <WithPanel panel={doc !== undefined && <DocumentPanel key={doc} docKey={doc} onClose={close} />}>
      <header className="topic-head">
        <a className="topic-back" href={hrefTo("sync")}>
          <Icon name="chevron" size={14} />
          All topics
        </a>
        <h2 className="mono">{name}</h2>
        {topic && <TopicFigures topic={topic} />}
      </header>
      {topic !== undefined && topic.projection.failed > 0 && (
        <FailedStreams topic={name} failed={topic.projection.failed} />
      )}
      <Documents topicName={name} topic={topic} />
    </WithPanel>
  );
}
