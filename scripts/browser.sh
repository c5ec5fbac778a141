#!/bin/sh
# Prints the path of a Chromium for the tests; installs one where there is none: Debian's as root, else Playwright's own.
# Usage: browser.sh FOLDER_OF_PYTHON_COMMANDS
set -eu
bin=$1

find_browser() {
  if [ -n "${BROWSER_PATH:-}" ]; then echo "$BROWSER_PATH"; return; fi
  command -v chromium || command -v chromium-browser || command -v google-chrome || playwright_browser
}

playwright_browser() {
  "$bin/python" "$(dirname "$0")/playwright_path.py" 2>/dev/null
}

install_browser() {
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    { apt-get update && apt-get install -y --no-install-recommends chromium fonts-noto-cjk; } >&2
  else
    "$bin/playwright" install chromium >&2
  fi
}

find_browser || { install_browser; find_browser; }
