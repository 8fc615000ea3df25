import type { ReactNode } from "react";
import type { Asked } from "./asking.ts";
import { Failure, Loading } from "./states.tsx";

export interface AnsweredProps<Data> {
  readonly asked: Asked<Data>;
  readonly children: (data: Data) => ReactNode;
}

/** What was answered; before that, that it is on its way or why it did not come. An answer stays when the next one fails. */
export function Answered<Data>({ asked: { data, error, again }, children }: AnsweredProps<Data>) {
  if (data === undefined) return error ? <Failure error={error} onRetry={again} /> : <Loading />;
  return (
    <>
      {error && <Failure error={error} inline onRetry={again} />}
      {children(data)}
    </>
  );
}
