import type { Page } from "playwright-core";

/** The label or the text of the focused element. */
export function focused(page: Page): Promise<string> {
  return page.evaluate<string>(`(${nameOfFocus})()`);
}

/** Tabs through the page once, and returns the elements without a visible focus. */
export async function unseenFocus(page: Page, most = 60): Promise<readonly string[]> {
  const unseen: string[] = [];
  for (let presses = 0; presses < most; presses++) {
    await page.keyboard.press("Tab");
    const place = await page.evaluate<string | undefined>(`(${placeWithoutMark})()`);
    if (place !== undefined) unseen.push(place);
    if (await page.evaluate<boolean>("document.activeElement === document.body")) break;
  }
  return unseen;
}

const nameOfFocus = `() => {
  const element = document.activeElement;
  const name = element.getAttribute("aria-label") ?? element.innerText ?? "";
  return name.trim().split("\\n")[0];
}`;

/** A mark is an outline or a ring of the element, of its container, or of its ::after. */
const placeWithoutMark = `() => {
  const element = document.activeElement;
  if (!element || element === document.body) return undefined;
  const hasMark = (style) =>
    (style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0) || style.boxShadow !== "none";
  const around = [element, element.parentElement, element.parentElement?.parentElement].filter(Boolean);
  if (around.some((one) => hasMark(getComputedStyle(one)))) return undefined;
  if (element.firstElementChild && hasMark(getComputedStyle(element.firstElementChild))) return undefined;
  if (getComputedStyle(element, "::after").content !== "none") return undefined;
  return element.tagName + "." + element.className + " " + (element.getAttribute("aria-label") ?? element.innerText ?? "").slice(0, 40);
}`;
