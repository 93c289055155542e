# A node of Rioni, from this checkout. Settings are environment variables; the data directory is the volume /data. It
# listens on all addresses of its container, so it needs an auth_mode, or RIONI_ALLOW_UNAUTHENTICATED=true to try things.
# With `--target testing` it is a broker for tests: no authentication, nothing is kept (docs/testing.md).
FROM python:3.12-slim AS build
COPY . /src
RUN pip wheel --no-cache-dir --wheel-dir /wheels "/src[cluster]"

FROM python:3.12-slim AS installed
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir --no-index --find-links /wheels "rioni[cluster]" \
    && useradd --system --create-home rioni \
    && install --directory --owner rioni /data
USER rioni
EXPOSE 8080
STOPSIGNAL SIGTERM

FROM installed AS testing
HEALTHCHECK --interval=2s --timeout=5s --retries=15 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://localhost:8080/readyz', timeout=4)"]
ENTRYPOINT ["rioni-testing"]
CMD ["serve", "--host", "0.0.0.0"]

FROM installed
VOLUME /data
ENV RIONI_DATA=/data RIONI_HOST=0.0.0.0
ENTRYPOINT ["rioni"]
CMD ["serve"]
