// Loaded before anything is painted, so that a theme unlike the system's does not flash. src/theme.ts changes it later.
(() => {
  const kept = localStorage.getItem("khala.theme");
  const dark = kept === "dark" || (kept !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
})();
