import { useMemo } from "react";
import { encode } from "uqr";
import { links } from "../router.ts";
import { Button } from "../ui/controls/button.tsx";
import { Dialog } from "../ui/controls/dialog.tsx";
import { useCopy } from "../ui/hooks.ts";

export interface DeviceLinkProps {
  readonly convId: string;
  readonly open: boolean;
  readonly onClose: () => void;
}

/** A QR code and a link to the same conversation, for another device. */
export function DeviceLink({ convId, open, onClose }: DeviceLinkProps) {
  const url = new URL(links.conversation(convId), window.location.origin).href;
  const [copied, copy] = useCopy();
  const isLoopback = ["localhost", "127.0.0.1", "[::1]"].includes(window.location.hostname);
  return (
    <Dialog
      open={open}
      onClose={onClose}
      title="Continue on another device"
      about="Scan the code, or open the link. Both devices show the conversation live."
      actions={
        <Button kind="primary" icon={copied ? "check" : "copy"} onClick={() => copy(url)}>
          {copied ? "Copied" : "Copy link"}
        </Button>
      }
    >
      <div className="device">
        <QrCode text={url} />
        <a className="text-link mono" href={url} target="_blank" rel="noreferrer">
          {url}
        </a>
        <p className="quiet">
          {isLoopback
            ? "This address works on this machine only. For a phone, start the server with KHALA_HOST=0.0.0.0 and open its network address."
            : "The other device needs a token of the same user."}
        </p>
      </div>
    </Dialog>
  );
}

/** Always dark on light: many cameras cannot read the inverse. */
function QrCode({ text }: { readonly text: string }) {
  const { size, path } = useMemo(() => qrPath(text), [text]);
  return (
    <svg className="qr" viewBox={`0 0 ${size} ${size}`} role="img" aria-label={`QR code of ${text}`}>
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
