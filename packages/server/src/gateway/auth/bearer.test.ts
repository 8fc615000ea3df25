import { phoenix as wire } from "@khala/contracts";
import { describe, expect, test } from "vitest";
import { bearerToken, socketToken } from "./bearer.ts";

describe("the Authorization header", () => {
  test.each([
    ["Bearer a.b.c", "a.b.c"],
    ["bearer   a.b.c ", "a.b.c"],
    ["BEARER a.b.c", "a.b.c"],
  ])("%j carries a token", (authorization, token) => {
    expect(bearerToken({ authorization })).toBe(token);
  });

  test.each([undefined, "", "Bearer", "Bearer ", "Basic dXNlcjpwdw==", "a.b.c", "Bearer a b"])(
    "%j carries none",
    (authorization) => {
      expect(bearerToken(authorization === undefined ? {} : { authorization })).toBeUndefined();
    },
  );
});

describe("a socket's handshake", () => {
  const params = (text: string) => new URLSearchParams(text);
  // The protocols that the Phoenix client sends for its authToken option.
  const phoenix = (token: string) => `phoenix, base64url.bearer.phx.${btoa(token).replace(/=/g, "")}`;

  test("takes the token param", () => {
    expect(socketToken({ params: params("vsn=2.0.0&token=a.b.c"), protocols: undefined })).toEqual({
      token: "a.b.c",
      subprotocol: undefined,
    });
  });

  test.each(["a.b.c", "a.b.cd", "a.b.cde", "eyJh.~~>>??.sig"])(
    "takes the authToken of the Phoenix client and answers with phoenix: %s",
    (token) => {
      expect(socketToken({ params: params(""), protocols: phoenix(token) })).toEqual({
        token,
        subprotocol: "phoenix",
      });
    },
  );

  test("takes an authToken in real base64url too", () => {
    const encoded = Buffer.from("eyJh.~~>>??.sig").toString("base64url");
    expect(encoded).toMatch(/[-_]/);
    const protocols = `base64url.bearer.phx.${encoded},phoenix`;
    expect(socketToken({ params: params(""), protocols })).toEqual({
      token: "eyJh.~~>>??.sig",
      subprotocol: "phoenix",
    });
  });

  test.each(["a.b.c", "eyJh.~~>>??.sig", "ü"])("takes what our own client offers for %s", (token) => {
    const offered = wire.tokenProtocols(token);
    // The characters that a browser accepts in the name of a subprotocol.
    for (const name of offered) expect(name).toMatch(/^[\w.-]+$/);
    expect(socketToken({ params: params(""), protocols: offered.join(", ") })).toEqual({
      token,
      subprotocol: "phoenix",
    });
  });

  test("prefers the authToken, which proxies do not log, over the param", () => {
    expect(socketToken({ params: params("token=old"), protocols: phoenix("new") }).token).toBe("new");
  });

  test("offers phoenix without a token", () => {
    expect(socketToken({ params: params("token=a.b.c"), protocols: "phoenix" })).toEqual({
      token: "a.b.c",
      subprotocol: "phoenix",
    });
  });

  test.each([undefined, "", "graphql-ws", "base64url.bearer.phx."])("finds no token in %j", (protocols) => {
    expect(socketToken({ params: params("token="), protocols })).toEqual({
      token: undefined,
      subprotocol: undefined,
    });
  });
});
