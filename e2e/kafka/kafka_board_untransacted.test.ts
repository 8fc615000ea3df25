import { boardSuite } from "@khala/test-support/conformance/board/board";
import { kafkaHere } from "@khala/test-support/kafka/kafka";
import { kafkaBoardOfSuite } from "@khala/test-support/kafka/kafka_board";
import { describe, vi } from "vitest";

// Its tests mostly wait for groups to form.
vi.setConfig({ maxConcurrency: 12 });

describe.skipIf(!kafkaHere())("Kafka", () => {
  boardSuite("Kafka without transactions", () => kafkaBoardOfSuite({ transactions: false }), {
    concurrent: true,
    // How tasks are settled and offsets committed: the rest is the same with transactions.
    subjects: ["publishing and the index", "what was settled", "several processes", "stopping"],
  });
});
