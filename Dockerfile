# The demo as one image: docker build -t driftscope . && docker run --rm -p 127.0.0.1:8501:8501 driftscope
ARG BASE_IMAGE=python:3.11-slim-bookworm
FROM ${BASE_IMAGE}

# An index with torch's CPU build, if the default one, with CUDA, is not wanted.
ARG PIP_EXTRA_INDEX_URL=""
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1

RUN useradd --create-home --uid 10001 driftscope && install -d -o driftscope /data
WORKDIR /app
COPY requirements.txt .
RUN python -m pip install -r requirements.txt
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
HEALTHCHECK --interval=15s --timeout=5s --start-period=60s \
  CMD python -c "import urllib.request as r; r.urlopen('http://127.0.0.1:$STREAMLIT_SERVER_PORT/_stcore/health', timeout=4)"
CMD ["streamlit", "run", "app.py"]
