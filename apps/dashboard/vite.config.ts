import react from "@vitejs/plugin-react";
import { defaultClientConditions, defineConfig } from "vite";

/** The server that `npm run dev` shows. */
const SERVER = "http://127.0.0.1:4000";
const API = [
  "/api",
  "/socket",
  "/ops/v1",
  "/sync/v1",
  "/blackboard/v1",
  "/chat",
  "/ws",
  "/runtime",
  "/readyz",
];

export default defineConfig({
  plugins: [react()],
  // The client is compiled from its source, so that no package has to be built first.
  resolve: { conditions: ["khala-source", ...defaultClientConditions], dedupe: ["react", "react-dom"] },
  build: {
    target: "es2023",
    assetsInlineLimit: 0,
    reportCompressedSize: false,
    // No warnings about build time on slow machines.
    rolldownOptions: { checks: { bundlerTimings: false } },
  },
  server: {
    // The page's own host is passed on: the server mints only for pages of the same origin.
    proxy: Object.fromEntries(API.map((path) => [path, { target: SERVER, ws: true }])),
  },
});
