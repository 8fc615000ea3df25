import { useMemo } from "react";
import { encode } from "uqr";
import { Button } from "../parts/button.tsx";
import { useCopy } from "../parts/copying.ts";
import { Dialog } from "../parts/dialog.tsx";
import { hrefTo } from "../router.ts";
import { conversationWords } from "../strings/conversations.ts";

const words = conversationWords.device;

export interface DeviceLinkProps {
  readonly convId: string;
  readonly open: boolean;
  readonly onClose: () => void;
}

/** The same conversation for another device: a code to scan, and its link. */
export function DeviceLink({ convId, open, onClose }: DeviceLinkProps) {
  const url = new URL(hrefTo("conversations", { conv: convId }), window.location.origin).href;
  const [copied, copy] = useCopy();
  return (
    <Dialog
      open={open}
      onClose={onClose}
      title={words.title}
      about={words.text}
      actions={
        <Button kind="primary" icon={copied ? "check" : "copy"} onClick={() => copy(url)}>
          {copied ? words.copied : words.copy}
        </Button>
      }
    >
      <div className="device">
        <QrCode text={url} />
        <a className="text-link mono" href={url} target="_blank" rel="noreferrer">
          {url}
        </a>
        <p className="quiet">{isLoopback() ? words.loopback : words.access}</p>
      </div>
    </Dialog>
  );
}

/** Always dark on light: many cameras cannot read the inverse. */
function QrCode({ text }: { readonly text: string }) {
  const { size, path } = useMemo(() => qrPath(text), [text]);
  return (
    <svg className="qr" viewBox={`0 0 ${size} ${size}`} role="img" aria-label={words.qr(text)}>
      <rect width={size} height={size} fill="#fff" />
      <path d={path} fill="#000" shapeRendering="crispEdges" />
    </svg>
  );
}

function qrPath(text: string): { size: number; path: string } {
  const { data, size } = encode(text, { ecc: "M", border: 2 });
  const path = data.flatMap((row, y) => row.map((dark, x) => (dark ? `M${x} ${y}h1v1h-1z` : ""))).join("");
  return { size, path };
}

const isLoopback = () => ["localhost", "127.0.0.1", "[::1]"].includes(window.location.hostname);
