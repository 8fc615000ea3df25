export {
  type Created,
  createApp,
  type NewApp,
  NotPossible,
  TEMPLATES,
  type Template,
} from "./create_app.ts";
