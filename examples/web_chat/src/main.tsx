import { KhalaProvider } from "@khala/client/react";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { Chat, Line } from "./chat.tsx";
import { findConversation } from "./history.ts";
import { khala } from "./khala.ts";
import { Runs } from "./runs.tsx";

const found = await findConversation();

createRoot(document.getElementById("root")!).render(
  <StrictMode>
    <KhalaProvider client={khala}>
      <Line />
      <Chat {...found} />
      <Runs />
    </KhalaProvider>
  </StrictMode>,
);
