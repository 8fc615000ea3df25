import { type Application, Converter, ReflectionKind } from "typedoc";
import { importName } from "./import_name.ts";

/** Names each module of the API reference as a program imports it, `@khala/client/react`, not by the file it is in. */
export function load({ converter }: Pick<Application, "converter">): void {
  converter.on(Converter.EVENT_RESOLVE_BEGIN, ({ project }) => {
    for (const module of project.getChildrenByKind(ReflectionKind.Module))
      module.name = importName(module.name);
  });
}
