/** The words of the frame around the rooms. */
export const appWords = {
  name: "Khala",
  skip: "Skip to the content",
  rooms: "Rooms",
  room: {
    home: "Home",
    sync: "Sync",
    conversations: "Conversations",
    blackboard: "Blackboard",
    operations: "Operations",
  },
  shortRoom: {
    home: "Home",
    sync: "Sync",
    conversations: "Chats",
    blackboard: "Board",
    operations: "Ops",
  },
  search: "Search",
  theme: { system: "Theme: as the system", light: "Theme: light", dark: "Theme: dark" },
  token: "Token",
  nextTheme: "Switch the theme",
  changeToken: "Use another token",
  roomFailed: "This room stopped working",
  roomFailedBody:
    "The other rooms go on. Reloading the page usually helps; if it happens again, please report it with the text above.",
  reload: "Reload the page",
  group: {
    pages: "Pages",
    actions: "Actions",
    documents: "Documents",
    conversations: "Conversations",
    artifacts: "Artifacts",
    agents: "Agents",
  },
  page: {
    parity: "Sync · parity",
    deadLetters: "Blackboard · dead letters",
    sockets: "Operations · sockets",
    closes: "Operations · closed sockets",
    errors: "Operations · errors by code",
    traces: "Operations · traces",
    config: "Operations · settings",
  },
} as const;

/** The words of signing in. */
export const sessionWords = {
  reaching: "Reaching the server…",
  title: "Sign in with a token",
  about:
    "This server wants to know who asks. The dashboard needs the scope ops, and the scopes of what you want to see.",
  refused: "The token was refused",
  make: "Make one on the machine of the server:",
  command: "khala token --scope ops blackboard:read blackboard:write chat runtime.run_summaries",
  field: "Token",
  placeholder: "eyJ…",
  kept: "It is kept in this tab alone, until you close it.",
  signIn: "Sign in",
  cancel: "Cancel",
  signOut: "Forget this token",
  useDevToken: "Use the development token",
  changeTitle: "Use another token",
  changeAbout: "What you may see depends on the scopes of the token.",
  notAToken: "This does not look like a token: it has three parts with dots between them.",
} as const;
