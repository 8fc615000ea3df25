/** The first that loads an app in TypeScript without a flag. */
const [MAJOR, MINOR] = [22, 18] as const;

/** What to say to somebody whose Node cannot run the new app; undefined for one that can. */
export function nodeTooOld(version: string): string | undefined {
  const [major = 0, minor = 0] = version.split(".").map(Number);
  if (major > MAJOR || (major === MAJOR && minor >= MINOR)) return undefined;
  return `The app needs Node ${MAJOR}.${MINOR} or later, and this is ${version}. Install it first: https://nodejs.org`;
}
