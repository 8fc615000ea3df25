/** The wire type, if it has every field of the template; a misspelt field is a type error. */
type Matching<Template, Wire> = keyof Template extends keyof Wire ? Wire : never;

/**
 * Completes a message of the server by a template: an absent field gets the template's value, and a 64-bit number, which JSON
 * carries as text, becomes a number. `[item]` is a list of such items; `{}` and `undefined` are taken as they come.
 */
export function complete<Template extends object, Wire extends object>(
  template: Template,
  wire: Matching<Template, Wire>,
): Readonly<Template> {
  return completeValue(template, wire) as Template;
}

/** Completes each message of a list. */
export function completeAll<Template extends object, Wire extends object>(
  template: Template,
  wires: readonly Matching<Template, Wire>[] | undefined,
): readonly Readonly<Template>[] {
  return (wires ?? []).map((wire) => complete(template, wire));
}

function completeValue(template: unknown, wire: unknown): unknown {
  if (template === undefined) return wire;
  if (typeof template === "number") return Number(wire ?? template);
  if (Array.isArray(template))
    return (Array.isArray(wire) ? wire : []).map((item) => completeValue(template[0], item));
  if (typeof template !== "object" || template === null || Object.keys(template).length === 0)
    return wire ?? template;
  const fields: Readonly<Record<string, unknown>> = Object(wire);
  return Object.fromEntries(
    Object.entries(template).map(([name, value]) => [name, completeValue(value, fields[name])]),
  );
}
