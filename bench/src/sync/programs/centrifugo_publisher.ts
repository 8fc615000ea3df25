import { Agent, request } from "node:http";
import { CENTRIFUGO_KEY } from "../centrifugo.ts";

/** Publishes through Centrifugo's HTTP API; resolves when it has acknowledged. */
export type CentrifugoPublish = (channel: string, dataJson: string) => Promise<void>;

/** Opens a publisher with as many kept-alive connections as are used at once. */
export function centrifugoPublisher(port: number): CentrifugoPublish {
  const agent = new Agent({ keepAlive: true, maxSockets: 256 });
  return (channel, dataJson) =>
    new Promise((resolve, reject) => {
      const body = `{"channel":"${channel}","data":${dataJson}}`;
      const call = request(
        {
          agent,
          port,
          host: "127.0.0.1",
          method: "POST",
          path: "/api/publish",
          headers: {
            "X-API-Key": CENTRIFUGO_KEY,
            "Content-Type": "application/json",
            "Content-Length": Buffer.byteLength(body),
          },
        },
        (response) => {
          let text = "";
          response.setEncoding("utf8").on("data", (chunk: string) => {
            text += chunk;
          });
          response.on("end", () => {
            if (response.statusCode === 200 && !text.includes('"error"')) resolve();
            else reject(new Error(`Centrifugo answered ${response.statusCode}: ${text}`));
          });
        },
      );
      call.on("error", reject);
      call.end(body);
    });
}
