import type { ClientSocket, Connection } from "./connection.ts";

/** An address at which sockets are opened, and what is spoken there. */
export interface Door {
  readonly path: string;
  /** What operators know it by. */
  readonly kind: string;
  /** What a token must allow, also one that replaces the first. */
  readonly scope?: string;
  /**
   * Checks what the address asks for, before anybody is let in: throws KhalaError to refuse. What it returns serves the
   * socket; it may send at once, but must not throw, nor end the connection before it returns.
   */
  readonly open: (url: URL) => (connection: Connection) => ClientSocket;
}
