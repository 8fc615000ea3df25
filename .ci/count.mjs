// Prints `N passed, N failed, N skipped` from Vitest's JSON report; a report that is missing is a failure.
import { readFileSync } from "node:fs";

let report;
try {
  report = JSON.parse(readFileSync(process.argv[2], "utf8"));
} catch {
  console.log("0 passed, 1 failed, 0 skipped");
  process.exit(1);
}
// A file that fails before its tests are known has none to count.
const broken = report.testResults.filter(
  (file) => file.status === "failed" && file.assertionResults.length === 0,
);
// An error outside any test fails the run without failing a test.
const failed = report.numFailedTests + broken.length || (report.success ? 0 : 1);
const skipped = report.numPendingTests + report.numTodoTests;
console.log(`${report.numPassedTests} passed, ${failed} failed, ${skipped} skipped`);
process.exit(failed > 0 ? 1 : 0);
