# The sidecar's image. The client is the distribution `sidelook`.
ARG PYTHON_IMAGE=python:3.11-slim

FROM ${PYTHON_IMAGE} AS build
WORKDIR /build
COPY requirements/service.txt requirements/service.txt
# Only wheels, only those of the lock file: nothing is compiled and nothing else gets in.
RUN python -m venv /opt/venv \
    && /opt/venv/bin/python -m pip install --no-cache-dir --disable-pip-version-check --no-compile \
        --only-binary=:all: --require-hashes -r requirements/service.txt \
    && /opt/venv/bin/python -m pip uninstall --yes pip setuptools
# The command `sidelook` is for `kubectl exec`; its first path entry, the folder of the script,
# becomes that of the code.
RUN printf '%s\n' '#!/opt/venv/bin/python' 'import sys' 'sys.path[0] = "/app"' \
        'from service.commands.application import main' 'main()' > /opt/venv/bin/sidelook \
    && chmod 0755 /opt/venv/bin/sidelook
COPY tools/image/root_file_system.py root_file_system.py
COPY lookup_core /app/lookup_core
COPY service /app/service
# A library that is missing in the root fails the build here.
RUN /opt/venv/bin/python root_file_system.py /image /app \
    && PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=/app \
        chroot --userspec=185:185 /image /opt/venv/bin/python -c \
            'import uvloop, service.app, service.commands.application, service.observability.span_export'

FROM scratch AS run
ARG VERSION=0.1.0
LABEL org.opencontainers.image.title="Sidelook" \
      org.opencontainers.image.description="Asynchronous lookup joins for PySpark: the sidecar" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /image /
# The embedded default has no socket. As all of the environment, this beats the configuration file:
# to move the socket, set the variable.
ENV PATH=/opt/venv/bin \
    LANG=C.UTF-8 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    SIDELOOK_LISTEN__UNIX=/run/sidelook/sidelook.sock
WORKDIR /app
USER 185:185
EXPOSE 8816
STOPSIGNAL SIGTERM
# Alive is enough: a dead database is no reason to restart. Kubernetes uses the template's probes.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8816/livez', timeout=4)"]
ENTRYPOINT ["python", "-m", "service"]
CMD ["serve"]
