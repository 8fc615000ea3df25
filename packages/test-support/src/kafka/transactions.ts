import { type KafkaSettings, loadClient } from "../../../kafka/src/client/client.ts";
import { openPlainAdmin, type PlainAdmin } from "../../../kafka/src/client/plain_admin.ts";

/** The state of a transactional id on the only broker of a cluster. */
export interface TransactionState {
  /** The time a transaction may stay open. */
  readonly transactionTimeoutMs: number;
}

interface Connecting extends PlainAdmin {
  connectToBrokers(): Promise<ReadonlyMap<number, unknown>>;
}

interface Described {
  readonly transactionStates: readonly (TransactionState & { readonly errorCode: number })[];
}

interface Apis {
  readonly describeTransactionsV0: {
    readonly api: { async(connection: unknown, ids: readonly string[]): Promise<Described> };
  };
}

const ID_NOT_FOUND = 105;

/** Returns undefined if the broker does not know the id, or has forgotten it. */
export async function transactionState(
  kafka: KafkaSettings,
  id: string,
): Promise<TransactionState | undefined> {
  const { describeTransactionsV0 } = await loadClient<Apis>("@platformatic/kafka");
  const admin = (await openPlainAdmin(kafka)) as Connecting;
  try {
    const [broker] = (await admin.connectToBrokers()).values();
    return (await describeTransactionsV0.api.async(broker, [id])).transactionStates[0];
  } catch (error) {
    const { response } = error as { readonly response?: Described };
    if (response?.transactionStates[0]?.errorCode === ID_NOT_FOUND) return undefined;
    throw error;
  } finally {
    await admin.close();
  }
}
