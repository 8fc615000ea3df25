export { ManualClock } from "../../../testing/src/manual_clock.ts";
