/** Imports a package of this folder's install. The caller states what it uses of it: types are checked without the install. */
export function importPeer<T>(name: string): Promise<T> {
  return import(name);
}
