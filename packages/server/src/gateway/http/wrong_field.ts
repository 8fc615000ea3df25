import { type DescMessage, fromJson, type JsonValue } from "@bufbuild/protobuf";

/** The path of the first field that the message's schema refuses, such as `events[0].data`; empty for the message itself. */
export function wrongField(schema: DescMessage, sent: unknown, ignoreUnknownFields = false): string {
  // The JSON of well-known types, such as Struct, is not that of their fields.
  if (!isObject(sent) || schema.typeName.startsWith("google.protobuf.")) return "";
  const refuses = (name: string, value: unknown) => {
    try {
      fromJson(schema, { [name]: value as JsonValue }, { ignoreUnknownFields });
      return false;
    } catch {
      return true;
    }
  };
  const [name, value] = Object.entries(sent).find(([name, value]) => refuses(name, value)) ?? [];
  if (name === undefined) return "";
  const field = schema.fields.find((known) => known.jsonName === name || known.name === name);
  const within = (message: DescMessage, inner: unknown, at: string) => {
    const rest = wrongField(message, inner, ignoreUnknownFields);
    return rest ? `${at}.${rest}` : at;
  };
  if (field?.fieldKind === "message") return within(field.message, value, name);
  if (field?.fieldKind !== "list" || field.listKind !== "message" || !Array.isArray(value)) return name;
  const index = value.findIndex((item) => refuses(name, [item]));
  return index < 0 ? name : within(field.message, value[index], `${name}[${index}]`);
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
