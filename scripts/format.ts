// npm run format: fixes format and most lint errors, in the whole repository or in the files that are named.
import { runTool } from "./install.ts";

const files = process.argv.slice(2);
const { code, output } = await runTool("biome", ["check", "--write", ...(files.length > 0 ? files : ["."])]);
process.stdout.write(output);
process.exitCode = code;
