import { useKhala } from "@khala/client/react";
import { useMutation } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { hrefTo, setParams, useParam } from "../router.ts";
import { Button } from "../ui/controls/button.tsx";
import { Confirm } from "../ui/controls/confirm.tsx";
import { Icon } from "../ui/controls/icons.tsx";
import { Empty } from "../ui/feedback/notices.tsx";
import { useToast } from "../ui/feedback/toast.tsx";
import { classNames } from "../ui/format/class_names.ts";
import { Id } from "../ui/format/id.tsx";
import { Chat } from "./chat.tsx";
import { ConversationList, NoConversations, useConversationList } from "./conversation_list.tsx";
import { DeviceLink } from "./device_link.tsx";
import { ReplayView } from "./replay/replay.tsx";
import { newConversationId } from "./use_record.ts";
import "./conversations.css";
import "./parts.css";

/** The Conversations page: the list, and the selected one, live or replayed. */
export default function ConversationsPage() {
  const [convId] = useParam("conv");
  const [whose] = useParam("whose");
  const owner = whose === "org" ? "org" : "own";
  const list = useConversationList(owner);
  const isEmpty = list.data?.length === 0 && !list.isFiltered;
  const start = () => setParams({ conv: newConversationId(), replay: "" });
  const title = list.data?.find(({ conv_id }) => conv_id === convId)?.title ?? "";
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
        owner={owner}
        onOwner={(next) => setParams({ whose: next === "org" ? next : "" })}
        selected={convId}
        onNew={start}
      />
      <section className="conversation" aria-label={`Conversation: ${title || (convId ?? "")}`}>
        {convId !== undefined ? (
          <OpenConversation key={convId} convId={convId} title={title} onDeleted={list.refetch} />
        ) : isEmpty ? (
          <NoConversations
            owner={owner}
            action={
              <Button kind="primary" icon="plus" onClick={start}>
                Start a conversation
              </Button>
            }
          />
        ) : (
          <Empty title="Select a conversation" icon="conversations">
            Or start a new one. It continues when you close the page, and on any device.
          </Empty>
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

function OpenConversation(props: OpenProps) {
  const { convId } = props;
  const [replay, setReplay] = useParam("replay");
  const header = (health: ReactNode, isAbsent = false) => (
    <Header {...props} health={health} isAbsent={isAbsent} isReplay={replay !== undefined} />
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
  /** There is nothing to replay or to delete. */
  readonly isAbsent: boolean;
  readonly isReplay: boolean;
}

function Header({ convId, title, health, isAbsent, isReplay, onDeleted }: HeaderProps) {
  const [open, setOpen] = useState<"device" | "delete">();
  const close = () => setOpen(undefined);
  return (
    <header className="conversation-head">
      <a className="conversation-back" href={hrefTo("conversations")} aria-label="All conversations">
        <Icon name="chevron" />
      </a>
      <div className="conversation-name">
        <h2>{title !== "" ? title : isAbsent ? "New conversation" : "Conversation"}</h2>
        <Id value={convId} length={20} />
      </div>
      {health}
      {!isReplay && !isAbsent && (
        <Button icon="play" onClick={() => setParams({ replay: "end" })}>
          Replay
        </Button>
      )}
      <Button icon="phone" onClick={() => setOpen("device")}>
        Second device
      </Button>
      {!isAbsent && (
        <Button kind="bare" icon="trash" aria-label="Delete conversation" onClick={() => setOpen("delete")} />
      )}
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
  const toast = useToast();
  const remove = useMutation({
    mutationFn: () => khala.conversation(convId).delete(),
    onSuccess: () => {
      onDeleted();
      toast("Conversation deleted.");
      setParams({ conv: "", replay: "" });
    },
  });
  return (
    <Confirm
      open={open}
      title="Delete this conversation?"
      about="It is deleted on all devices. This cannot be undone."
      action="Delete"
      icon="trash"
      busy={remove.isPending}
      error={remove.error}
      onConfirm={() => remove.mutate()}
      onClose={onClose}
    />
  );
}
