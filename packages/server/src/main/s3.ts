import { KhalaError } from "@khala/contracts";
import type { FileStore } from "../conversations/files/file_store.ts";
import type { Clock } from "../kit/clock.ts";
import type { Context } from "../kit/context.ts";
import type { Config } from "./config.ts";

/** The part of the S3 driver that is used here. It is a separate package, so that only those who name a bucket install it. */
interface S3Driver {
  openS3FileStore(options: {
    readonly url: string;
    readonly region: string;
    readonly accessKeyId: string;
    readonly secretAccessKey: string;
    readonly clock: Clock;
  }): FileStore;
}

const DRIVER = "@khala/s3";

/** The bucket of files that the settings name, if any. */
export async function openBucket(config: Config, { clock }: Context): Promise<FileStore | undefined> {
  const { KHALA_FILES_S3_URL: url, KHALA_FILES_S3_REGION: region } = config;
  if (!url) return undefined;
  const { openS3FileStore } = await loadDriver();
  const accessKeyId = config.KHALA_FILES_S3_ACCESS_KEY ?? "";
  const secretAccessKey = config.KHALA_FILES_S3_SECRET_KEY ?? "";
  return openS3FileStore({ url, region, accessKeyId, secretAccessKey, clock });
}

async function loadDriver(): Promise<S3Driver> {
  try {
    return (await import(DRIVER)) as S3Driver;
  } catch (cause) {
    if ((cause as { code?: string }).code !== "ERR_MODULE_NOT_FOUND") throw cause;
    const message = `KHALA_FILES_S3_URL is set, and the driver ${DRIVER} is not installed. Run \`npm install ${DRIVER}\`.`;
    throw new KhalaError("unavailable", message, {}, { cause });
  }
}
