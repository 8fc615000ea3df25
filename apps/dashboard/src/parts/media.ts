import { useSyncExternalStore } from "react";

/** Whether a media query holds at the moment. */
function useMedia(query: string): boolean {
  return useSyncExternalStore(
    (listener) => {
      const list = window.matchMedia(query);
      list.addEventListener("change", listener);
      return () => list.removeEventListener("change", listener);
    },
    () => window.matchMedia(query).matches,
  );
}

/** Whether the page is as narrow as a phone. */
export const useNarrow = () => useMedia("(max-width: 720px)");
