export { type Created, createApp, type NewApp, NotPossible } from "./create_app.ts";
