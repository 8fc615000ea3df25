// A process that only routes for a board on Kafka, or only works for its agent. Prints a line when it is ready, and its
// warnings. Stops on SIGTERM, and ends with its input.

import { testContext } from "../kit/context.ts";
import { openStepBoard, type Role } from "../steps/board_steps.ts";

process.stdin.resume().once("close", () => process.exit(1));
const { BOARD_KAFKA, BOARD_PREFIX, BOARD_CLIENT, BOARD_TRANSACTIONS, BOARD_ROLE } = process.env;

const place = {
  bootstrap: BOARD_KAFKA!,
  prefix: BOARD_PREFIX!,
  clientId: BOARD_CLIENT!,
  transactionalId: BOARD_TRANSACTIONS!,
};
const context = await testContext({ onWarning: (line) => process.stdout.write(line) });
const board = await openStepBoard(context, place, BOARD_ROLE as Role);
console.log("listening on Kafka");
process.once("SIGTERM", () => board.stop().then(() => process.exit(0)));
