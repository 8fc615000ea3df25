import { execFile } from "node:child_process";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";

const run = promisify(execFile);

/** PEM files of an authority, of a server on loopback that it vouches for, and of a client. */
export interface Certificates {
  readonly ca: string;
  /** The broker's key and certificate in one file. */
  readonly broker: string;
  readonly cert: string;
  /** The client's key, locked with `passphrase`. */
  readonly key: string;
  readonly passphrase: string;
}

/** Makes certificates for a day in a folder. */
export async function makeCertificates(folder: string): Promise<Certificates> {
  const at = (name: string) => join(folder, name);
  const openssl = (...args: string[]) => run("openssl", args, { cwd: folder, timeout: 30_000 });
  const newKey = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"];
  const passphrase = "a phrase for tests";
  await openssl(
    "req",
    "-x509",
    ...newKey,
    "-nodes",
    "-days",
    "1",
    "-subj",
    "/CN=authority",
    "-keyout",
    "ca.key",
    "-out",
    "ca.pem",
  );
  await writeFile(at("names"), "subjectAltName=IP:127.0.0.1\n");
  const issue = async (name: string, ...lock: string[]) => {
    await openssl(
      "req",
      ...newKey,
      ...lock,
      "-subj",
      `/CN=${name}`,
      "-keyout",
      `${name}.key`,
      "-out",
      `${name}.csr`,
    );
    const by = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "1", "-extfile", "names"];
    await openssl("x509", "-req", "-in", `${name}.csr`, ...by, "-out", `${name}.pem`);
  };
  await issue("broker", "-nodes");
  await issue("client", "-passout", `pass:${passphrase}`);
  await writeFile(
    at("broker.both"),
    (await readFile(at("broker.key"), "utf8")) + (await readFile(at("broker.pem"), "utf8")),
  );
  return {
    ca: at("ca.pem"),
    broker: at("broker.both"),
    cert: at("client.pem"),
    key: at("client.key"),
    passphrase,
  };
}
