import { KhalaError } from "@khala/contracts";

/** Loads a package that apps install only for some settings; the error says what to install. */
export async function loadOptional<T>(name: string, setting: string, load: () => Promise<T>): Promise<T> {
  try {
    return await load();
  } catch (cause) {
    const { code, message: reason = "" } = cause as NodeJS.ErrnoException;
    if (code !== "ERR_MODULE_NOT_FOUND" || !reason.includes(name)) throw cause;
    const message = `${setting} is set, but the package ${name} is not installed. Run \`npm install ${name}\`.`;
    throw new KhalaError("unavailable", message, {}, { cause });
  }
}
