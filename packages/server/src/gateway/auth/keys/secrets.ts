import { MIN_SECRET_BYTES } from "./algorithms.ts";

/** A shared secret with its kid. */
export interface Secret {
  readonly kid: string;
  readonly secret: Uint8Array;
}

/** Reads `kid:base64` pairs, separated by commas. */
export function readSecrets(text: string): readonly Secret[] {
  const kids = new Set<string>();
  return text.split(",").map((pair) => {
    const colon = pair.indexOf(":");
    const kid = pair.slice(0, colon).trim();
    const secret = Buffer.from(pair.slice(colon + 1).trim(), "base64");
    if (colon < 1 || secret.length < MIN_SECRET_BYTES)
      throw new Error(
        `must be kid:base64 pairs separated by commas, each secret of ${MIN_SECRET_BYTES} bytes or more, such as "k1:$(openssl rand -base64 32)"`,
      );
    if (kids.has(kid)) throw new Error(`has the kid \`${kid}\` twice; give each secret its own`);
    kids.add(kid);
    return { kid, secret };
  });
}
