import { createContext, createElement, type ReactNode, useContext } from "react";
import type { BoardTopics } from "../app_types.ts";
import type { KhalaClient } from "../client.ts";
import type { Topics } from "../sync/plane_port.ts";

/** A client of any app. */
export type AnyClient = Omit<KhalaClient, "sync"> & { readonly sync: object };

const KhalaContext = createContext<AnyClient | undefined>(undefined);

/** Gives the client to the hooks below it. Whoever made the client closes it. */
export function KhalaProvider({
  client,
  children,
}: {
  readonly client: AnyClient;
  readonly children?: ReactNode;
}) {
  return createElement(KhalaContext.Provider, { value: client }, children);
}

/** The client. */
export function useKhala<T extends Topics = BoardTopics>(): KhalaClient<T> {
  const client = useContext(KhalaContext);
  if (!client)
    throw new Error("There is no client here. Put <KhalaProvider client={…}> around this component.");
  // Which app it is of, only the app knows.
  return client as KhalaClient<T>;
}
