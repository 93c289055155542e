# A node of Rioni, from this checkout. Settings are environment variables; the data directory is the volume /data. It
# listens on all addresses of its container, so it needs an auth_mode, or RIONI_ALLOW_UNAUTHENTICATED=true to try things.
FROM python:3.12-slim AS build
COPY . /src
RUN pip wheel --no-cache-dir --wheel-dir /wheels "/src[cluster]"

FROM python:3.12-slim
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir --no-index --find-links /wheels "rioni[cluster]" \
    && useradd --system --create-home rioni \
    && install --directory --owner rioni /data
USER rioni
VOLUME /data
EXPOSE 8080
ENV RIONI_DATA=/data RIONI_HOST=0.0.0.0
STOPSIGNAL SIGTERM
ENTRYPOINT ["rioni"]
CMD ["serve"]
