import { useKhala } from "@khala/client/react";
import { useMemo, useState } from "react";
import { Answered } from "../parts/answered.tsx";
import { type Asked, asFailure, useAsk } from "../parts/asking.ts";
import { WithPanel } from "../parts/detail_panel.tsx";
import { Icon } from "../parts/icons.tsx";
import { Failure, type FailureLike } from "../parts/states.tsx";
import { Tabs } from "../parts/tabs.tsx";
import { hrefTo, setParams, useParam } from "../router.ts";
import { syncWords } from "../strings/sync.ts";
import { ClientsView } from "./clients_view.tsx";
import { DocumentPanel } from "./document_panel.tsx";
import { DocumentsView } from "./documents_view.tsx";
import { ParityView } from "./parity_view.tsx";
import { readFollowers, readParity, readTopic, type Topic } from "./sync_types.ts";
import { TopicFigures, TopicsView } from "./topics_view.tsx";
import "./sync.css";

const EVERY_MS = 2_000;

/** The Sync room: topics, their documents, who follows them, and parity. */
export default function SyncRoom() {
  const { ops } = useKhala();
  const [tab = "topics"] = useParam("tab");
  const topics = useAsk("topics", async () => (await ops.topics()).topics?.map(readTopic) ?? [], {
    everyMs: EVERY_MS,
  });
  return (
    <Tabs
      label={syncWords.tabsLabel}
      selected={tab}
      onSelect={(id) =>
        setParams({ tab: id === "topics" ? "" : id, topic: "", doc: "", q: "", view: "", version: "" })
      }
      tabs={[
        { id: "topics", label: syncWords.tabs.topics, content: <Topics topics={topics} /> },
        { id: "clients", label: syncWords.tabs.clients, content: <Clients topics={topics} /> },
        { id: "parity", label: syncWords.tabs.parity, content: <Parity /> },
      ]}
    />
  );
}

type TopicsAsked = Asked<readonly Topic[]>;

function Topics({ topics }: { readonly topics: TopicsAsked }) {
  const [topic] = useParam("topic");
  if (topic !== undefined) return <TopicPage name={topic} topics={topics} />;
  return (
    <Answered asked={topics}>
      {(data) => <TopicsView topics={data} onOpen={(name) => setParams({ topic: name })} />}
    </Answered>
  );
}

/** The documents of one topic, with its figures above and the chosen document beside. */
function TopicPage({ name, topics }: { readonly name: string; readonly topics: TopicsAsked }) {
  const [search = "", setSearch] = useParam("q");
  const [doc, setDoc] = useParam("doc");
  const topic = topics.data?.find((one) => one.topic === name);
  return (
    <WithPanel
      panel={
        doc !== undefined && (
          <DocumentPanel
            key={doc}
            docKey={doc}
            onClose={() => setParams({ doc: "", view: "", version: "" })}
          />
        )
      }
    >
      <header className="topic-head">
        <a className="topic-back" href={hrefTo("sync")}>
          <Icon name="chevron" size={14} />
          {syncWords.documents.back}
        </a>
        <h2 className="mono">{name}</h2>
        {topic && <TopicFigures topic={topic} />}
      </header>
      {topic?.projection.state === "broken" && (
        <Failure inline error={{ code: "internal", message: topic.projection.message }} />
      )}
      <DocumentsView
        topicName={name}
        topic={topic}
        search={search}
        onSearch={(text) => setSearch(text, { replace: true })}
        selected={doc}
        onSelect={(key) =>
          doc === undefined ? setDoc(key) : setParams({ doc: key, version: "" }, { replace: true })
        }
      />
    </WithPanel>
  );
}

function Clients({ topics }: { readonly topics: TopicsAsked }) {
  const { ops } = useKhala();
  const [filter = "", setFilter] = useParam("q");
  const sockets = useAsk("sockets", () => ops.sockets(), { everyMs: EVERY_MS });
  const known = topics.data;
  const followers = useMemo(
    () => sockets.data && readFollowers(sockets.data, known ?? []),
    [sockets.data, known],
  );
  return (
    <Answered asked={{ ...sockets, data: followers }}>
      {(data) => (
        <ClientsView
          followers={data}
          filter={filter}
          onFilter={(text) => setFilter(text, { replace: true })}
        />
      )}
    </Answered>
  );
}

function Parity() {
  const { ops } = useKhala();
  const parity = useAsk("parity", async () => readParity(await ops.parity()), { everyMs: EVERY_MS });
  const [comparing, setComparing] = useState(false);
  const [failure, setFailure] = useState<FailureLike>();
  const compare = async () => {
    setComparing(true);
    try {
      await ops.compareParity();
      setFailure(undefined);
    } catch (error) {
      setFailure(asFailure(error));
    }
    setComparing(false);
    parity.again();
  };
  return (
    <Answered asked={parity}>
      {(data) => <ParityView {...data} comparing={comparing} failure={failure} onCompare={compare} />}
    </Answered>
  );
}
