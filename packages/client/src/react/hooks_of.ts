import type { AppTypes, TopicsOf } from "../app_types.ts";
import type { KhalaClient } from "../client.ts";
import type { DocumentOf, Item, Snapshot, TopicName, Topics } from "../sync/plane_port.ts";
import { useKhala } from "./provider.ts";
import { type ListOptions, type SelectedList, useDoc, useList } from "./use_sync.ts";

/** The hooks that read documents, with the types of an app. */
export interface Hooks<T extends Topics> {
  useKhala(): KhalaClient<T>;
  useDoc<Topic extends TopicName<T>>(topic: Topic, key: string): Snapshot<DocumentOf<T, Topic>>;
  useList<Topic extends TopicName<T>, Result = Item<DocumentOf<T, Topic>>>(
    topic: Topic,
    options?: ListOptions<DocumentOf<T, Topic>, Result>,
  ): SelectedList<Result>;
}

/** The hooks for an app: `export const { useDoc, useList } = hooksOf<typeof app>()`. */
export function hooksOf<App extends AppTypes>(): Hooks<TopicsOf<App>> {
  return { useKhala, useDoc, useList };
}
