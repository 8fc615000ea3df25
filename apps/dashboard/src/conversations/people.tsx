import type { ConversationView } from "./types.ts";
import type { ConversationRecord } from "./use_record.ts";

interface PeopleProps {
  readonly participants: NonNullable<ConversationRecord["participants"]>;
  readonly present: ConversationView["present"];
}

/** Who takes part, on how many devices each has it open now, and who types. Nothing where one person is alone. */
export function People({ participants, present }: PeopleProps) {
  const devices = Map.groupBy(present, ({ subject = "" }) => subject);
  const roles = new Map(participants.map(({ subject = "", role = "" }) => [subject, role]));
  const people = [...new Set([...roles.keys(), ...devices.keys()])];
  if (people.length <= 1 && present.length <= 1) return null;
  return (
    <ul className="people" aria-label="People">
      {people.map((subject) => {
        const open = devices.get(subject) ?? [];
        const notes = [
          roles.get(subject),
          open.length > 1 && `${open.length} devices`,
          open.some(({ typing }) => typing) && "typing…",
        ].filter(Boolean);
        return (
          <li key={subject} className="person">
            <span className={open.length > 0 ? "dot ok" : "dot quiet"} aria-hidden="true" />
            <span>{subject}</span>
            <span className="visually-hidden">{open.length > 0 ? "connected" : "not connected"}</span>
            <span className="quiet">{notes.join(", ")}</span>
          </li>
        );
      })}
    </ul>
  );
}
