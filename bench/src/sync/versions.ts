import { packageVersion } from "../kit/package_version.ts";

/** The versions of everything that is compared. */
export function versions(postgres: string, centrifugo: string | undefined): string[] {
  return [
    `Node ${process.version}`,
    postgres,
    centrifugo ?? "Centrifugo: not installed, left out",
    ...["pg", "ws", "socket.io"].map((name) => `${name} ${packageVersion(name)}`),
  ];
}
