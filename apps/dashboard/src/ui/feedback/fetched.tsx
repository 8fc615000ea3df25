import type { ReactNode } from "react";
import type { FetchState } from "../../data/fetch.ts";
import { Failure, Loading } from "./notices.tsx";

export interface FetchedProps<Data> {
  readonly state: FetchState<Data>;
  readonly children: (data: Data) => ReactNode;
}

/** Shows fetched data, or that it is loading, or the error. Data stays, with a line above it, when a refetch fails. */
export function Fetched<Data>({ state: { data, error, refetch }, children }: FetchedProps<Data>) {
  if (data === undefined) return error ? <Failure error={error} onRetry={refetch} /> : <Loading />;
  return (
    <>
      {error && <Failure error={error} inline onRetry={refetch} />}
      {children(data)}
    </>
  );
}
