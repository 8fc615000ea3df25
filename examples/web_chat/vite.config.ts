import react from "@vitejs/plugin-react";
import { defaultClientConditions, defineConfig } from "vite";

const SERVER = process.env.KHALA_URL ?? "http://127.0.0.1:4000";
const ROUTES = ["/ai", "/api", "/chat", "/socket", "/sync"];

/** The page and the server have one address, as behind any proxy. */
const proxy = Object.fromEntries(ROUTES.map((path) => [path, { target: SERVER, ws: true }]));

export default defineConfig({
  plugins: [react()],
  // In this repository the packages are used from their sources; elsewhere leave this out.
  resolve: { conditions: ["khala-source", ...defaultClientConditions] },
  server: { proxy },
  preview: { proxy },
});
