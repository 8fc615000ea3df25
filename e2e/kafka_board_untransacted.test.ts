import { describe } from "vitest";
import { boardSuite } from "../packages/server/src/conformance/board.ts";
import { kafkaHere } from "./support/kafka.ts";
import { kafkaBoardOfSuite } from "./support/kafka_board.ts";

describe.skipIf(!kafkaHere())("Kafka", () => {
  boardSuite("Kafka without transactions", () => kafkaBoardOfSuite({ transactions: false }));
});
