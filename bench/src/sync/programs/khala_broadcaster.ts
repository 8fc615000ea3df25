import { serve } from "../../kit/program.ts";
import { onEachByte } from "./control.ts";
import { khalaPublisher } from "./khala_publisher.ts";

let stop: () => Promise<void> = async () => {};

const methods = {
  /** Writes the next document whenever it is asked for one: neither the gateway nor the clients share its process. */
  async open({ url }: { url: string }): Promise<{ control: number }> {
    const writer = await khalaPublisher(url);
    stop = () => writer.stop();
    let next = 0;
    const control = await onEachByte(() => void writer.publish(next++, null));
    return { control: control.port };
  },
};

/** What this program can be asked. */
export type KhalaBroadcaster = typeof methods;

serve(methods, () => stop());
