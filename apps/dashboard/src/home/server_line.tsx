import { bytesText, countText, durationText, rateText } from "../parts/numbers.ts";
import { hrefTo, links } from "../router.ts";
import { homeWords as words } from "../strings/home.ts";
import type { Overview } from "./overview_read.ts";

/** The door and the process, in a line of numbers that lead to Operations. */
export function ServerLine({ overview }: { readonly overview: Overview }) {
  const { gateway, process } = overview;
  const load = hrefTo("operations", { tab: "load" });
  const messages = rateText(gateway.messagesPerSecond);
  const numbers = [
    { value: countText(gateway.sockets), word: words.sockets(gateway.sockets), href: links.sockets() },
    { value: messages, word: words.messages(messages), href: load },
    { value: bytesText(gateway.bytesPerSecond), word: words.bytes, href: load },
    {
      value: countText(gateway.slowCloses),
      word: words.slowCloses(gateway.slowCloses),
      href: links.closes("slow_consumer"),
    },
    { value: rateText(gateway.errorsPerSecond), word: words.errors, href: links.errors() },
    { value: countText(gateway.refused), word: words.refused, href: links.errors() },
    { value: bytesText(process.rssBytes), word: words.memory, href: load },
    { value: `${rateText(process.cpuPercent)} %`, word: words.cpu, href: load },
    { value: durationText(process.loopMs), word: words.loop, href: load },
  ];
  return (
    <ul className="server-line" aria-label={words.server}>
      {numbers.map(({ value, word, href }) => (
        <li key={word}>
          <a href={href}>
            <strong>{value}</strong> {word}
          </a>
        </li>
      ))}
    </ul>
  );
}
