import { once } from "node:events";
import { connect } from "node:net";
import { afterAll, inject } from "vitest";

// Before the file is loaded and outside the limits of its tests: see turns.ts.
const socket = connect(inject("turns"), "127.0.0.1");
await once(socket, "data");
socket.unref();
afterAll(() => void socket.destroy());
