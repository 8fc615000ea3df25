import { Tabs } from "../parts/tabs.tsx";
import { setParams, useParam } from "../router.ts";
import { opsWords } from "../strings/operations.ts";
import { Closes } from "./closes.tsx";
import { Config } from "./config.tsx";
import { Errors } from "./errors.tsx";
import { Load } from "./load.tsx";
import { Sockets } from "./sockets.tsx";
import { Traces } from "./traces.tsx";
import "./operations.css";

const VIEWS = {
  load: Load,
  sockets: Sockets,
  closes: Closes,
  errors: Errors,
  traces: Traces,
  config: Config,
};
const NAMES = Object.keys(VIEWS) as readonly (keyof typeof VIEWS)[];

/** Operations: how the server is loaded, who is connected, what went wrong, and how it is set. */
export default function OperationsRoom() {
  const [tab] = useParam("tab");
  const selected = NAMES.find((name) => name === tab) ?? "load";
  return (
    <Tabs
      label={opsWords.label}
      selected={selected}
      // What is filtered and selected belongs to the tab that it was done in.
      onSelect={(id) =>
        setParams({
          tab: id,
          q: undefined,
          item: undefined,
          trace: undefined,
          span: undefined,
          correlation: undefined,
        })
      }
      tabs={NAMES.map((name) => {
        const View = VIEWS[name];
        return { id: name, label: opsWords.tab[name], content: <View /> };
      })}
    />
  );
}
