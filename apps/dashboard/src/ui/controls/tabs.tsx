import { Tabs as Base } from "@base-ui/react/tabs";
import { type ReactNode, useEffect, useRef } from "react";
import { countText } from "../format/numbers.ts";

export interface Tab {
  readonly id: string;
  readonly label: string;
  /** How many items it has. */
  readonly count?: number;
  readonly content: ReactNode;
}

export interface TabsProps {
  readonly label: string;
  readonly tabs: readonly Tab[];
  readonly selected: string;
  readonly onSelect: (id: string) => void;
}

/** Tabs over one panel that fills the rest of the height. Pass `selected` from `useParam`. */
export function Tabs({ label, tabs, selected, onSelect }: TabsProps) {
  const list = useRef<HTMLDivElement>(null);
  const counts = tabs.map(({ count }) => count ?? "").join(" ");
  // On a phone the tabs are wider than the screen, and grow with their counts.
  // biome-ignore lint/correctness/useExhaustiveDependencies: both move the selected tab.
  useEffect(() => {
    list.current
      ?.querySelector("[aria-selected=true]")
      ?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [selected, counts]);
  return (
    <Base.Root className="tabs" value={selected} onValueChange={(value) => onSelect(String(value))}>
      <div className="tabs-line">
        <Base.List ref={list} className="tabs-list" aria-label={label}>
          {tabs.map((tab) => (
            <Base.Tab key={tab.id} value={tab.id} className="tab">
              {tab.label}
              {tab.count !== undefined && <span className="tab-count">{countText(tab.count)}</span>}
            </Base.Tab>
          ))}
        </Base.List>
      </div>
      {tabs.map((tab) => (
        <Base.Panel key={tab.id} value={tab.id} className="tab-panel">
          {tab.content}
        </Base.Panel>
      ))}
    </Base.Root>
  );
}
