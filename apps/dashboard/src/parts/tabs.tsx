import { Tabs as Base } from "@base-ui/react/tabs";
import { type ReactNode, useEffect, useRef } from "react";

export interface Tab {
  readonly id: string;
  readonly label: string;
  /** How many things are behind it. */
  readonly count?: number;
  readonly content: ReactNode;
}

export interface TabsProps {
  readonly label: string;
  readonly tabs: readonly Tab[];
  readonly selected: string;
  readonly onSelect: (id: string) => void;
  /** At the right edge of the line of tabs. */
  readonly end?: ReactNode;
}

/** Tabs over one panel, which fills what is left of the height. Hand in `selected` from `useParam`. */
export function Tabs({ label, tabs, selected, onSelect, end }: TabsProps) {
  const list = useRef<HTMLDivElement>(null);
  const counts = tabs.map(({ count }) => count ?? "").join(" ");
  // On a phone the line is longer than the screen, and grows with its counts.
  // biome-ignore lint/correctness/useExhaustiveDependencies: both move the tab that is selected.
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
              {tab.count !== undefined && <span className="tab-count">{tab.count.toLocaleString("en")}</span>}
            </Base.Tab>
          ))}
        </Base.List>
        {end !== undefined && <div className="toolbar-end">{end}</div>}
      </div>
      {tabs.map((tab) => (
        <Base.Panel key={tab.id} value={tab.id} className="tab-panel">
          {tab.content}
        </Base.Panel>
      ))}
    </Base.Root>
  );
}
