import { useCallback, useSyncExternalStore } from "react";
import type { ConnectionStatus } from "../connection/port.ts";
import { useKhala } from "./provider.ts";

const ON_A_SERVER: ConnectionStatus = { state: "idle", since: 0, attempt: 0, role: "own" };

/** How the connection stands. */
export function useConnection(): ConnectionStatus {
  const { connection } = useKhala();
  const subscribe = useCallback((listener: () => void) => connection.subscribe(listener), [connection]);
  return useSyncExternalStore(
    subscribe,
    () => connection.status(),
    () => ON_A_SERVER,
  );
}
