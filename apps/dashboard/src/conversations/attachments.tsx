import type { KhalaClient } from "@khala/client";
import { type ClipboardEvent, useEffect, useRef, useState } from "react";
import { toErrorInfo } from "../data/fetch.ts";
import { Button } from "../ui/controls/button.tsx";
import { Icon } from "../ui/controls/icons.tsx";
import { bytesText, plural } from "../ui/format/numbers.ts";

type Upload = ReturnType<KhalaClient["conversation"]>["upload"];
type Stored = Awaited<ReturnType<Upload>>;

/** The limit of a server with default settings. A server with a lower one refuses the upload, and its reason is shown. */
const MAX_BYTES = 25 << 20;

/** A file that will be sent with the next message. */
interface Attachment {
  readonly id: number;
  readonly file: File;
  readonly state: "waiting" | "uploading" | "failed";
  readonly error?: string;
}

/** The files of the message that is being written. */
export interface Attachments {
  readonly list: readonly Attachment[];
  /** Files are being dragged over the page. */
  readonly isDropTarget: boolean;
  /** No file is too large. */
  readonly isSendable: boolean;
  add(files: Iterable<File>): void;
  remove(id: number): void;
  clear(): void;
  onPaste(event: ClipboardEvent): void;
  /** Uploads the files. Those that arrived in an earlier try are not uploaded again. */
  upload(): Promise<readonly Stored[]>;
}

/** Files by button, paste or drop anywhere on the page. They are uploaded when the message is sent. */
export function useAttachments(upload: Upload): Attachments {
  const [list, setList] = useState<readonly Attachment[]>([]);
  const [isDropTarget, setDropTarget] = useState(false);
  const nextId = useRef(0);
  const stored = useRef(new Map<File, Stored>());

  const add = useRef((files: Iterable<File>) => {
    const added = [...files].map((file): Attachment => {
      const id = nextId.current++;
      if (file.size <= MAX_BYTES) return { id, file, state: "waiting" };
      const error = `Too large: ${bytesText(file.size)}. Choose a file of at most ${bytesText(MAX_BYTES)}.`;
      return { id, file, state: "failed", error };
    });
    setList((now) => [...now, ...added]);
  }).current;
  const change = (id: number, next: Omit<Attachment, "id" | "file">) =>
    setList((now) => now.map((one) => (one.id === id ? { id, file: one.file, ...next } : one)));

  useEffect(() => {
    const hasFiles = (event: DragEvent) => event.dataTransfer?.types.includes("Files") ?? false;
    // Without this the browser would open the file in place of the page.
    const onDragOver = (event: DragEvent) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      setDropTarget(true);
    };
    const onDragLeave = (event: DragEvent) => {
      if (event.relatedTarget === null) setDropTarget(false);
    };
    const onDrop = (event: DragEvent) => {
      setDropTarget(false);
      if (!hasFiles(event)) return;
      event.preventDefault();
      add(event.dataTransfer?.files ?? []);
    };
    window.addEventListener("dragover", onDragOver);
    window.addEventListener("dragleave", onDragLeave);
    window.addEventListener("drop", onDrop);
    return () => {
      window.removeEventListener("dragover", onDragOver);
      window.removeEventListener("dragleave", onDragLeave);
      window.removeEventListener("drop", onDrop);
    };
  }, [add]);

  const uploadOne = async ({ id, file }: Attachment): Promise<Stored> => {
    const known = stored.current.get(file);
    if (known) return known;
    change(id, { state: "uploading" });
    try {
      const answer = await upload(file);
      stored.current.set(file, answer);
      change(id, { state: "waiting" });
      return answer;
    } catch (error) {
      change(id, { state: "failed", error: toErrorInfo(error).message });
      throw error;
    }
  };

  return {
    list,
    isDropTarget,
    isSendable: list.every(({ file }) => file.size <= MAX_BYTES),
    add,
    remove: (id) => setList((now) => now.filter((one) => one.id !== id)),
    clear: () => {
      stored.current.clear();
      setList([]);
    },
    onPaste: (event) => {
      if (event.clipboardData.files.length === 0) return;
      event.preventDefault();
      add(event.clipboardData.files);
    },
    upload: async () => {
      const results = await Promise.allSettled(list.map(uploadOne));
      return results.map((result) => {
        if (result.status === "rejected") throw result.reason;
        return result.value;
      });
    },
  };
}

/** The attached files, each with its state and a button to remove it. */
export function AttachmentList({ attachments }: { readonly attachments: Attachments }) {
  const { list, remove } = attachments;
  if (list.length === 0) return null;
  const uploading = list.filter(({ state }) => state === "uploading").length;
  return (
    <>
      <ul className="attachments" aria-label="Attached files">
        {list.map(({ id, file, state, error }) => (
          <li key={id} className="attachment" data-state={state}>
            <Icon name={state === "uploading" ? "working" : state === "failed" ? "failed" : "file"} />
            <span className="attachment-text">
              <span className="message-file-name">{file.name}</span>
              <span className="quiet">{state === "uploading" ? "uploading…" : bytesText(file.size)}</span>
              {error !== undefined && (
                <span className="failed" role="alert">
                  {error}
                </span>
              )}
            </span>
            <Button
              kind="bare"
              icon="close"
              aria-label={`Remove ${file.name}`}
              disabled={state === "uploading"}
              onClick={() => remove(id)}
            />
          </li>
        ))}
      </ul>
      <p className="visually-hidden" role="status">
        {uploading > 0 ? `Uploading ${plural(uploading, "file")}` : `${plural(list.length, "file")} attached`}
      </p>
    </>
  );
}

/** Opens the file chooser of the browser. */
export function AttachButton({ onAdd }: { readonly onAdd: (files: Iterable<File>) => void }) {
  const input = useRef<HTMLInputElement>(null);
  return (
    <>
      <input
        ref={input}
        type="file"
        multiple
        hidden
        aria-label="Files to attach"
        onChange={({ target }) => {
          onAdd([...(target.files ?? [])]);
          // The same file can be chosen again.
          target.value = "";
        }}
      />
      <Button kind="bare" icon="attach" aria-label="Attach files" onClick={() => input.current?.click()} />
    </>
  );
}
