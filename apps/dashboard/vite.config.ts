import react from "@vitejs/plugin-react";
import { defaultClientConditions, defineConfig } from "vite";

/** Where `npm run dev` finds the server whose data it shows. */
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
    // A slow machine is no reason for a warning in everybody's install.
    rolldownOptions: { checks: { bundlerTimings: false } },
  },
  server: {
    proxy: Object.fromEntries(API.map((path) => [path, { target: SERVER, ws: true, changeOrigin: true }])),
  },
});
