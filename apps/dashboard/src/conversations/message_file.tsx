import { useKhala } from "@khala/client/react";
import { createContext, use, useEffect, useState } from "react";
import { toErrorInfo, useFetch } from "../data/fetch.ts";
import { Button } from "../ui/controls/button.tsx";
import { Icon } from "../ui/controls/icons.tsx";
import { Failure } from "../ui/feedback/notices.tsx";
import { bytesText } from "../ui/format/numbers.ts";
import { OutLink } from "../ui/markdown/markdown.tsx";
import type { Part } from "./types.ts";

type FilePart = NonNullable<Part["file"]>;

/** The conversation whose messages are shown: its files are read with the token of the page. */
export const ConversationId = createContext("");

const OWN = /^\/files\//;
const IMAGE = /^image\/(png|jpeg|gif|webp|avif)$/;
/** A larger image is offered as a file. */
const MAX_IMAGE = 8 << 20;

/** A file of a message: an image is shown, another file can be saved. A file elsewhere is a link, and is not loaded. */
export function MessageFile({ file }: { readonly file: FilePart }) {
  const { url = "", media_type = "", name = "" } = file;
  if (url === "")
    return (
      <span className="message-file">
        <Icon name="file" />
        <span className="message-file-name">{name || "File"}</span>
      </span>
    );
  if (!OWN.test(url))
    return (
      <span className="message-file">
        <Icon name="link" />
        <OutLink href={url}>{name || url}</OutLink>
      </span>
    );
  if (IMAGE.test(media_type) && Number(file.size ?? 0) <= MAX_IMAGE) return <ImageFile file={file} />;
  return <OtherFile file={file} />;
}

function useRead(): (url: string) => Promise<Blob> {
  const khala = useKhala();
  const convId = use(ConversationId);
  return (url) => khala.conversation(convId).file(url);
}

function ImageFile({ file: { url = "", name } }: { readonly file: FilePart }) {
  const read = useRead();
  const { data: blob, error } = useFetch(["file", url], () => read(url));
  const [address, setAddress] = useState<string>();
  useEffect(() => {
    if (!blob) return;
    const made = URL.createObjectURL(blob);
    setAddress(made);
    return () => URL.revokeObjectURL(made);
  }, [blob]);
  if (error) return <Failure error={error} inline />;
  return (
    <figure className="message-image">
      {address !== undefined && <img src={address} alt={name || "Image without a description"} />}
      {name && <figcaption>{name}</figcaption>}
    </figure>
  );
}

function OtherFile({ file }: { readonly file: FilePart }) {
  const { url = "", name = "", media_type = "", size } = file;
  const read = useRead();
  const [error, setError] = useState<ReturnType<typeof toErrorInfo>>();
  const save = async () => {
    setError(undefined);
    try {
      const address = URL.createObjectURL(await read(url));
      const link = document.createElement("a");
      link.href = address;
      link.download = name || "file";
      link.click();
      URL.revokeObjectURL(address);
    } catch (cause) {
      setError(toErrorInfo(cause));
    }
  };
  return (
    <>
      <span className="message-file">
        <Icon name="file" />
        <span className="message-file-name">{name || "File"}</span>
        <span className="quiet">
          {media_type}
          {size !== undefined && ` · ${bytesText(Number(size))}`}
        </span>
        <Button kind="bare" onClick={save} aria-label={`Save ${name || "file"}`}>
          Save
        </Button>
      </span>
      {error && <Failure error={error} inline />}
    </>
  );
}
