import { hash } from "node:crypto";

/** SHA-256 in lowercase hex. */
export function sha256(text: string | Uint8Array): string {
  return hash("sha256", text, "hex");
}
