import { KhalaProvider, useConnection } from "@khala/client/react";
import { Board } from "./board.tsx";
import { Chat } from "./chat.tsx";
import { khala } from "./client.ts";
import { Tasks } from "./tasks.tsx";

/** The page: one part for each plane of the server. */
export default function Page() {
  return (
    <KhalaProvider client={khala}>
      <header>
        <h1>My app</h1>
        <Connection />
      </header>
      <main>
        <Tasks />
        <Chat />
        <Board />
      </main>
    </KhalaProvider>
  );
}

function Connection() {
  const { state, error } = useConnection();
  if (state === "unauthorised") return <p role="alert">{error?.message}</p>;
  return (
    <p role="status" data-state={state}>
      {state === "live" ? "Live" : state === "offline" ? "Offline" : "Connecting…"}
    </p>
  );
}
