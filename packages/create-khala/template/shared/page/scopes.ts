/** What the page may read and do. */
export const scopes = [
  "app.tasks",
  "tasks:write",
  "chat",
  "blackboard.correlations",
  "blackboard:read",
  "blackboard:write",
];
