import { describe, expect, test } from "vitest";
import { isInline, mediaType } from "./media_type.ts";

const bytes = (text: string) => Buffer.from(text, "latin1");
const PNG = bytes("\x89PNG\r\n\x1a\n\0\0\0\rIHDR");

describe("the type of a file", () => {
  test.for([
    [PNG, undefined, "image/png"],
    [PNG, "image/png", "image/png"],
    [PNG, "image/jpeg", "image/png"],
    [PNG, "text/html", "image/png"],
    [bytes("\xff\xd8\xff\xe0\0\x10JFIF"), undefined, "image/jpeg"],
    [bytes("GIF89a"), undefined, "image/gif"],
    [bytes("RIFF\0\0\0\0WEBPVP8 "), undefined, "image/webp"],
    [bytes("RIFF\0\0\0\0WAVEfmt "), "audio/x-wav", "audio/x-wav"],
    [bytes("\0\0\0\x20ftypisom"), "audio/mp4", "audio/mp4"],
    [bytes("\0\0\0\x20ftypisom"), undefined, "video/mp4"],
    [bytes("\0\0\0\x20ftypavif"), undefined, "image/avif"],
    [bytes("%PDF-1.7"), "application/octet-stream", "application/pdf"],
    [bytes("PK\x03\x04"), undefined, "application/zip"],
    [
      bytes("PK\x03\x04"),
      "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
      "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ],
    [bytes("PK\x03\x04"), "image/png", "application/zip"],
    [bytes("hello"), undefined, "text/plain"],
    [bytes("a,b\n1,2\n"), "text/csv; charset=utf-8", "text/csv"],
    [bytes("{}"), "application/json", "application/json"],
    [bytes("<html>"), "text/html", "text/html"],
    [bytes("<html>"), "image/png", "text/plain"],
    [bytes("\0\x01\x02"), undefined, "application/octet-stream"],
    [bytes("\0\x01\x02"), "image/png", "application/octet-stream"],
    [bytes("\0\x01\x02"), "text/plain", "application/octet-stream"],
    [bytes("\0\x01\x02"), "application/x-thing", "application/x-thing"],
    [bytes("hello"), "no type", "text/plain"],
    [Buffer.from("größer").subarray(0, 4), undefined, "text/plain"],
    [bytes("\xff\xfba"), "text/plain", "audio/mpeg"],
    [bytes("\xff\xfea\0,\0b\0"), undefined, "application/octet-stream"],
    [bytes("gr\xf6\xdfer"), undefined, "application/octet-stream"],
  ] as const)("%#: %s", ([head, declared, expected]) => {
    expect(mediaType(head, declared)).toBe(expected);
  });

  test("decides whether a browser may show it", () => {
    for (const type of ["image/png", "audio/mpeg", "video/mp4", "application/pdf", "text/plain"])
      expect(isInline(type), type).toBe(true);
    for (const type of [
      "text/html",
      "image/svg+xml",
      "application/xhtml+xml",
      "text/xml",
      "application/json",
    ])
      expect(isInline(type), type).toBe(false);
  });
});
