import { useKhala } from "@khala/client/react";
import { type ReactNode, useState } from "react";
import { asFailure } from "../parts/asking.ts";
import { Button } from "../parts/button.tsx";
import { classNames } from "../parts/class_names.ts";
import { Dialog } from "../parts/dialog.tsx";
import { Icon } from "../parts/icons.tsx";
import { Id } from "../parts/id.tsx";
import { Empty, Failure, type FailureLike } from "../parts/states.tsx";
import { hrefTo, setParams, useParam } from "../router.ts";
import { conversationWords } from "../strings/conversations.ts";
import { Chat } from "./chat.tsx";
import { ConversationList, NoConversations } from "./conversation_list.tsx";
import { DeviceLink } from "./device_link.tsx";
import { ReplayView } from "./replay.tsx";
import { useConversationList } from "./use_conversation_list.ts";
import "./conversations.css";

/** The Conversations room: the list, and the one that is open, live or replayed. */
export default function ConversationsRoom() {
  const [convId] = useParam("conv");
  const [whose] = useParam("whose");
  const list = useConversationList(whose === "org" ? "org" : "own");
  const isEmpty = list.asked.data?.length === 0;
  const begin = () => setParams({ conv: newConversationId(), replay: "" });
  const row = list.asked.data?.find((one) => one.convId === convId);
  return (
    <div
      className={classNames(
        "conversations",
        convId !== undefined && "conversations-open",
        isEmpty && "conversations-none",
      )}
    >
      <ConversationList
        list={list}
        whose={whose === "org" ? "org" : "own"}
        onWhose={(next) => setParams({ whose: next === "org" ? next : "" })}
        selected={convId}
        onNew={begin}
      />
      <section className="conversation" aria-label={conversationWords.chat.label(row?.title ?? convId ?? "")}>
        {convId === undefined && isEmpty ? (
          <NoConversations
            whose={whose === "org" ? "org" : "own"}
            action={
              <Button kind="primary" icon="plus" onClick={begin}>
                {conversationWords.list.start}
              </Button>
            }
          />
        ) : convId === undefined ? (
          <Empty title={conversationWords.chat.chooseTitle} icon="conversations">
            {conversationWords.chat.chooseText}
          </Empty>
        ) : (
          <OpenConversation
            key={convId}
            convId={convId}
            title={row?.title ?? ""}
            onDeleted={list.asked.again}
          />
        )}
      </section>
    </div>
  );
}

interface OpenProps {
  readonly convId: string;
  readonly title: string;
  readonly onDeleted: () => void;
}

function OpenConversation({ convId, title, onDeleted }: OpenProps) {
  const [replay, setReplay] = useParam("replay");
  const header = (health: ReactNode) => (
    <Header
      convId={convId}
      title={title}
      health={health}
      isReplay={replay !== undefined}
      onDeleted={onDeleted}
    />
  );
  if (replay === undefined) return <Chat convId={convId} header={header} />;
  const position = Number.parseInt(replay, 10);
  return (
    <ReplayView
      convId={convId}
      header={header}
      position={Number.isNaN(position) ? undefined : position}
      onMove={(next) => setReplay(String(next), { replace: true })}
      onLeave={() => setReplay(undefined)}
    />
  );
}

interface HeaderProps extends OpenProps {
  readonly health: ReactNode;
  readonly isReplay: boolean;
}

function Header({ convId, title, health, isReplay, onDeleted }: HeaderProps) {
  const [open, setOpen] = useState<"device" | "delete">();
  const close = () => setOpen(undefined);
  return (
    <header className="conversation-head">
      <a
        className="conversation-back"
        href={hrefTo("conversations")}
        aria-label={conversationWords.chat.back}
      >
        <Icon name="chevron" />
      </a>
      <div className="conversation-name">
        <h2>{title === "" ? conversationWords.list.untitled : title}</h2>
        <Id value={convId} length={20} />
      </div>
      {health}
      {!isReplay && (
        <Button icon="play" onClick={() => setParams({ replay: "end" })}>
          {conversationWords.replay.open}
        </Button>
      )}
      <Button icon="phone" onClick={() => setOpen("device")}>
        {conversationWords.device.open}
      </Button>
      <Button
        kind="bare"
        icon="trash"
        aria-label={conversationWords.chat.deleteMenu}
        onClick={() => setOpen("delete")}
      />
      <DeviceLink convId={convId} open={open === "device"} onClose={close} />
      <DeleteDialog convId={convId} open={open === "delete"} onClose={close} onDeleted={onDeleted} />
    </header>
  );
}

interface DeleteDialogProps {
  readonly convId: string;
  readonly open: boolean;
  readonly onClose: () => void;
  readonly onDeleted: () => void;
}

function DeleteDialog({ convId, open, onClose, onDeleted }: DeleteDialogProps) {
  const khala = useKhala();
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<FailureLike>();
  const words = conversationWords.chat;
  const remove = async () => {
    setBusy(true);
    try {
      await khala.conversation(convId).delete();
      onDeleted();
      setParams({ conv: "", replay: "" });
    } catch (failure) {
      setError(asFailure(failure));
    } finally {
      setBusy(false);
    }
  };
  return (
    <Dialog
      open={open}
      onClose={onClose}
      title={words.deleteTitle}
      about={words.deleteText}
      actions={
        <>
          <Button onClick={onClose}>{words.cancel}</Button>
          <Button kind="danger" icon="trash" busy={busy} onClick={remove}>
            {words.delete}
          </Button>
        </>
      }
    >
      {error && <Failure error={error} inline />}
    </Dialog>
  );
}

/** An id that sorts by time and can be read aloud. */
function newConversationId(): string {
  const random = Array.from(crypto.getRandomValues(new Uint8Array(6)), (byte) =>
    (byte % 36).toString(36),
  ).join("");
  return `chat-${Date.now().toString(36)}-${random}`;
}
