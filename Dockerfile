# syntax=docker/dockerfile:1
# `khala serve`, from source: Node runs TypeScript as it is. The embedded PostgreSQL is left out: set DATABASE_URL. So are the dashboard and npm.
# It runs without root and on a read-only root filesystem; scripts/image.ts builds it and tries that.
#
# With an app of your own:
#   FROM khala
#   COPY --chown=node app/ app/
#   CMD ["serve", "--app", "app/app.ts"]
# If it has packages of its own, install them in a stage of node:24, and copy app/ from there.
# Workers of it are the same image with the command `worker --app app/app.ts`; they are watched on the same port.
#
# With the Kafka driver: docker build --build-arg KAFKA=yes .
# Both bases can come from elsewhere, such as a registry of your own. They need the same Debian (or a compatible libc), useradd and groupadd.

ARG NODE_IMAGE=node:24-bookworm-slim
ARG BASE_IMAGE=debian:bookworm-slim

FROM ${NODE_IMAGE} AS install
WORKDIR /khala
COPY package.json package-lock.json .npmrc ./
COPY packages/contracts/package.json packages/contracts/
COPY packages/server/package.json packages/server/
COPY packages/cli/package.json packages/cli/
COPY deploy/image/package.json deploy/image/
RUN npm ci --omit=dev --omit=optional --ignore-scripts --workspace=@khala/image --include-workspace-root=false
# A package with a lock of its own, whose native client its install script downloads.
ARG KAFKA=
COPY packages/kafka/package.json packages/kafka/package-lock.json packages/kafka/.npmrc packages/kafka/
RUN if [ -n "$KAFKA" ]; then cd packages/kafka && npm ci --omit=dev; fi
# A quarter of what is installed is for editors and debuggers.
RUN find . -path '*/node_modules/*' -type f \( -name '*.map' -o -name '*.d.ts' -o -name '*.d.cts' -o -name '*.d.mts' -o -name '*.md' \) -delete

# Node alone, on the same Debian: its own image has headers and three package managers besides.
FROM ${BASE_IMAGE}
COPY --from=install /usr/local/bin/node /usr/local/bin/node
RUN groupadd --gid 1000 node && useradd --uid 1000 --gid node --no-create-home --shell /usr/sbin/nologin node
ENV NODE_ENV=production KHALA_HOST=0.0.0.0 KHALA_PORT=4000 KHALA_WORKER_PORT=4000
WORKDIR /khala
COPY --from=install /khala ./
COPY packages packages
USER node
EXPOSE 4000
HEALTHCHECK --interval=10s --timeout=3s --start-period=15s \
  CMD ["node", "-e", "fetch(`http://127.0.0.1:${process.env.KHALA_PORT}/readyz`).then((r) => process.exit(r.ok ? 0 : 1), () => process.exit(1))"]
ENTRYPOINT ["node", "--conditions=khala-source", "packages/cli/src/main.ts"]
CMD ["serve"]
