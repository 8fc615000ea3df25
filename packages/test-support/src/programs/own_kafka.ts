// Starts a broker from the given recipe, prints its address in one line of JSON, and stays.
import type { KafkaBinary } from "../kafka/binary.ts";
import { startKafkaServer } from "../kafka/server.ts";

const { bootstrap } = await startKafkaServer(JSON.parse(process.argv[2]!) as KafkaBinary);
console.log(JSON.stringify({ bootstrap }));
