import fc from "fast-check";
import { FIXED_SEED } from "./property_runs.ts";

// Unit tests must not depend on chance.
fc.configureGlobal({ seed: FIXED_SEED });
