import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { App } from "./app.tsx";
import { followLinks } from "./router.ts";
import { startTheme } from "./theme.ts";
import "./theme.css";
import "./ui/controls/controls.css";
import "./ui/controls/overlays.css";
import "./ui/ui.css";

startTheme();
followLinks();
const root = document.getElementById("root");
if (!root) throw new Error("index.html has no #root.");
createRoot(root).render(
  <StrictMode>
    <App />
  </StrictMode>,
);
