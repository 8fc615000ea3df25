/**
 * The JSON of a message as it travels: proto field names (snake_case). Generated types of messages without `json_name` have
 * lowerCamelCase; keys of maps stay what they are.
 */
export type Wire<T> = T extends readonly (infer Item)[]
  ? Wire<Item>[]
  : T extends object
    ? { [Key in keyof T as string extends Key ? Key : Key extends string ? Snake<Key> : Key]: Wire<T[Key]> }
    : T;

type Snake<Name extends string> = Name extends `${infer First}${infer Rest}`
  ? First extends Lowercase<First>
    ? `${First}${Snake<Rest>}`
    : `_${Lowercase<First>}${Snake<Rest>}`
  : Name;
