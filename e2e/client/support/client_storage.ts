import { type LocalStorageLike, localStorage } from "../../../packages/client/src/storage/local_storage.ts";
import type { Storage } from "../../../packages/client/src/storage/storage.ts";
import type { StorageFault } from "./client_commands.ts";

/** What one browser keeps: texts that outlive its tabs, and that a test can break. */
export class BreakableStore {
  readonly #texts = new Map<string, string>();
  #writers = 0;
  fault: StorageFault = "none";

  readonly #store: LocalStorageLike = this.#like();

  #like(): LocalStorageLike {
    const texts = this.#texts;
    const isFull = () => this.fault === "quota";
    return {
      get length() {
        return texts.size;
      },
      key: (index) => [...texts.keys()][index] ?? null,
      getItem: (name) => texts.get(name) ?? null,
      setItem(name, value) {
        if (isFull()) throw new DOMException("there is no room left", "QuotaExceededError");
        texts.set(name, value);
      },
      removeItem: (name) => void texts.delete(name),
    };
  }

  /** Cuts one of the texts in half, as a machine that loses power does. */
  corrupt(which: number): void {
    const names = [...this.#texts.keys()];
    const name = names[which % Math.max(1, names.length)];
    const text = name === undefined ? undefined : this.#texts.get(name);
    if (name !== undefined && text) this.#texts.set(name, text.slice(0, Math.floor(text.length / 2)));
  }

  /** The storage of one tab. A dead one writes nothing more. */
  open(dead: AbortSignal): Storage {
    const storage = localStorage({ store: this.#store, writer: `w${++this.#writers}` });
    const may = <T>(name: StorageFault, work: () => Promise<T>): Promise<T> => {
      if (dead.aborted) return Promise.reject(new Error("The tab is gone."));
      if (this.fault === name || this.fault === "all") return Promise.reject(new Error(`${name} fails`));
      return work();
    };
    return {
      load: (...args) => may("load", () => storage.load(...args)),
      commit: (...args) => may("commit", () => storage.commit(...args)),
      clear: (...args) => may("all", () => storage.clear(...args)),
      close: () => storage.close(),
    };
  }
}
