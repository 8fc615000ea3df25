import { boardSuite } from "@khala/testing/conformance/board/board";
import { kafkaHere } from "@khala/testing/kafka/kafka";
import { kafkaBoardOfSuite } from "@khala/testing/kafka/kafka_board";
import { describe } from "vitest";

describe.skipIf(!kafkaHere())("Kafka", () => {
  boardSuite("Kafka without transactions", () => kafkaBoardOfSuite({ transactions: false }));
});
