import { useCallback, useEffect, useState } from "react";

/** Copies a text, and says for a moment that it did. */
export function useCopy(): [boolean, (text: string) => void] {
  const [copied, setCopied] = useState(false);
  useEffect(() => {
    if (!copied) return;
    const timer = setTimeout(() => setCopied(false), 1500);
    return () => clearTimeout(timer);
  }, [copied]);
  const copy = useCallback((text: string) => {
    // Refused without a secure origin or a user's gesture; then there is nothing to say but that it was not copied.
    navigator.clipboard?.writeText(text).then(
      () => setCopied(true),
      () => setCopied(false),
    );
  }, []);
  return [copied, copy];
}
