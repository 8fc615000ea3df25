/** Calls `send` so many times a second for `ms`, on time whether or not the ones before are done. Answers how often. */
export async function paced(rate: number, ms: number, send: () => Promise<void>): Promise<number> {
  const started = performance.now();
  let sent = 0;
  await new Promise<void>((resolve, reject) => {
    const timer = setInterval(() => {
      const elapsed = performance.now() - started;
      for (const due = Math.floor((Math.min(elapsed, ms) * rate) / 1_000); sent < due; sent++)
        send().catch((error) => {
          clearInterval(timer);
          reject(error);
        });
      if (elapsed < ms) return;
      clearInterval(timer);
      resolve();
    }, 1);
  });
  return sent;
}
