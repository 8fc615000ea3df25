/** The files that name the images which a release is built from and runs beside. */
export const IMAGE_FILES = ["Dockerfile", "compose.yaml"];

// An image of our own has no tag.
const IMAGE = /^(ARG \w+_IMAGE=|\s+image: )([\w./-]+:[\w.-]+)(@sha256:[0-9a-f]{64})?$/gm;

export interface NamedImage {
  /** With its tag. */
  readonly name: string;
  readonly pinned: boolean;
}

/** The images that a file names. */
export function imagesOf(text: string): NamedImage[] {
  return [...text.matchAll(IMAGE)].map(([, , name, digest]) => ({
    name: name!,
    pinned: digest !== undefined,
  }));
}

/** The file with the digests of its images, by their names. One that it has already is replaced; the tag stays for people. */
export function withDigests(text: string, digests: ReadonlyMap<string, string>): string {
  return text.replace(IMAGE, (line, before: string, name: string) => {
    const digest = digests.get(name);
    return digest === undefined ? line : `${before}${name}@${digest}`;
  });
}
