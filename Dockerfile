# The demo as one image: docker build -t driftscope . && docker run --rm -p 127.0.0.1:8501:8501 -v driftscope:/data driftscope
# The same image is the scheduler and the workers of a larger demo: compose.yaml.
ARG BASE_IMAGE=python:3.11-slim-bookworm
FROM ${BASE_IMAGE} AS packages

# torch's own index of CPU builds, or of builds for a version of CUDA, as its install page names them. Without it pip takes
# what its default index has for this machine.
ARG PIP_EXTRA_INDEX_URL=""
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
COPY requirements.txt .
RUN python -m venv /opt/driftscope \
  && /opt/driftscope/bin/pip install -r requirements.txt \
  && find /opt/driftscope -name tests -type d -path '*/site-packages/*' -prune -exec rm -rf {} + \
  && rm -rf /opt/driftscope/lib/python3*/site-packages/torch/include /opt/driftscope/lib/python3*/site-packages/pip*

FROM ${BASE_IMAGE}
# Chromium, without a window, and the fonts draw pictures and films, with Chinese in them.
RUN apt-get update \
  && apt-get install -y --no-install-recommends chromium-headless-shell fonts-noto-cjk \
  && rm -rf /var/lib/apt/lists/* \
  && useradd --create-home --uid 10001 driftscope && install -d -o driftscope /data
ENV PATH=/opt/driftscope/bin:$PATH PYTHONUNBUFFERED=1 BROWSER_PATH=/usr/bin/chromium-headless-shell
COPY --from=packages /opt/driftscope /opt/driftscope
WORKDIR /app
COPY app.py ./
COPY .streamlit .streamlit
COPY assets assets
COPY core core
COPY pages pages

USER driftscope
# Compiles the recorder's loops into the user's cache, for processors like this one; on another the first start does.
RUN python -c "import core.recorder"
ENV STREAMLIT_SERVER_ADDRESS=0.0.0.0 STREAMLIT_SERVER_PORT=8501 STREAMLIT_SERVER_HEADLESS=true
ENV DRIFTSCOPE_STORE=sqlite:////data/driftscope.db
VOLUME /data
EXPOSE 8501
HEALTHCHECK --interval=15s --timeout=5s --start-period=60s CMD python -c "import urllib.request as r; \
  r.urlopen('http://127.0.0.1:$STREAMLIT_SERVER_PORT/${STREAMLIT_SERVER_BASE_URL_PATH:+$STREAMLIT_SERVER_BASE_URL_PATH/}_stcore/health', timeout=4)"
CMD ["streamlit", "run", "app.py"]
