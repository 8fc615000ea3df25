// A plugin of buf: writes the comments of the protos, by full name, for descriptions in /openapi.json.
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import {
  CodeGeneratorRequestSchema,
  CodeGeneratorResponse_Feature,
  CodeGeneratorResponseSchema,
  type FileDescriptorProto,
} from "@bufbuild/protobuf/wkt";

// Numbers of the fields in FileDescriptorProto and DescriptorProto: a location's path is made of them.
const MESSAGES = 4;
const FIELDS = 2;
const NESTED = 3;

const chunks: Buffer[] = [];
for await (const chunk of process.stdin) chunks.push(chunk as Buffer);
const request = fromBinary(CodeGeneratorRequestSchema, Buffer.concat(chunks));
const comments = request.protoFile
  .filter(({ name }) => request.fileToGenerate.includes(name))
  .flatMap(commentsOf)
  .sort(([a], [b]) => (a < b ? -1 : 1));
const content = `// Made from the comments in proto/ by scripts/protoc_gen_comments.ts.

/** Comments of messages and fields, by full name. */
export const COMMENTS: Readonly<Record<string, string>> = ${JSON.stringify(Object.fromEntries(comments), null, 2)};
`;
const response = create(CodeGeneratorResponseSchema, {
  supportedFeatures: BigInt(CodeGeneratorResponse_Feature.PROTO3_OPTIONAL),
  file: [{ name: "comments.ts", content }],
});
process.stdout.write(toBinary(CodeGeneratorResponseSchema, response));

function commentsOf(file: FileDescriptorProto): [name: string, comment: string][] {
  return (file.sourceCodeInfo?.location ?? []).flatMap(({ path, leadingComments }) => {
    const name = leadingComments.trim() && nameAt(file, path);
    const text = leadingComments.trim().replace(/\s*\n\s*/g, " ");
    return name ? [[`${file.package}.${name}`, text] as [string, string]] : [];
  });
}

/** The message or field at a path such as [4, 0, 2, 1]; undefined for anything else. */
function nameAt(file: FileDescriptorProto, path: readonly number[]): string | undefined {
  if (path[0] !== MESSAGES || path.length % 2 === 1) return undefined;
  let message = file.messageType[path[1]!]!;
  const names = [message.name];
  for (let i = 2; i < path.length; i += 2) {
    if (path[i] === FIELDS) {
      names.push(message.field[path[i + 1]!]!.name);
      return i + 2 === path.length ? names.join(".") : undefined;
    }
    if (path[i] !== NESTED) return undefined;
    message = message.nestedType[path[i + 1]!]!;
    names.push(message.name);
  }
  return names.join(".");
}
