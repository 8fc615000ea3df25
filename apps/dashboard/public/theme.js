// Loaded before anything is painted, so that a theme unlike the system's does not flash. src/theme.ts changes it later.
(() => {
  const stored = localStorage.getItem("khala.theme");
  const dark =
    stored === "dark" || (stored !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
})();
