import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

/** The page and the server have one address, as behind any proxy in production. Streams of the app have paths below /app. */
const proxy = {
  "^/(ag-ui|ai|api|app|approvals|blackboard|chat|files|ops|runtime|socket|sync|ws)(/|\\?|$)": {
    target: process.env.KHALA_URL ?? "http://127.0.0.1:4000",
    ws: true,
  },
};

export default defineConfig({
  plugins: [react()],
  server: { proxy },
  preview: { proxy },
});
