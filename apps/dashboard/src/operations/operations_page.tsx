import { setParams, useParam } from "../router.ts";
import { Tabs } from "../ui/controls/tabs.tsx";
import { AuditLog } from "./audit_log.tsx";
import { Closes } from "./closes.tsx";
import { Errors } from "./errors.tsx";
import { FailedRuns } from "./failed_runs.tsx";
import { Load } from "./load.tsx";
import { Quotas } from "./quotas.tsx";
import { Settings } from "./settings.tsx";
import { Sockets } from "./sockets.tsx";
import { Traces } from "./traces.tsx";
import "./operations.css";

const TABS = [
  { id: "load", label: "Load", content: <Load /> },
  { id: "sockets", label: "Sockets", content: <Sockets /> },
  { id: "closes", label: "Closed", content: <Closes /> },
  { id: "errors", label: "Errors", content: <Errors /> },
  { id: "runs", label: "Failed runs", content: <FailedRuns /> },
  { id: "traces", label: "Traces", content: <Traces /> },
  { id: "audit", label: "Audit log", content: <AuditLog /> },
  { id: "quotas", label: "Quotas", content: <Quotas /> },
  { id: "config", label: "Settings", content: <Settings /> },
];
/** Filter and selection belong to a tab. */
const NOTHING_SELECTED = { q: "", item: "", trace: "", span: "", correlation: "" };

/** The Operations page: load, sockets, errors, traces, the audit log, quotas and settings. */
export default function OperationsPage() {
  const [tab] = useParam("tab");
  return (
    <Tabs
      label="Operations views"
      selected={TABS.find(({ id }) => id === tab)?.id ?? "load"}
      onSelect={(id) => setParams({ ...NOTHING_SELECTED, tab: id })}
      tabs={TABS}
    />
  );
}
