#!/bin/sh
# Install Chromium for the browser tests where that is possible; without it they are skipped and say so.
command -v chromium >/dev/null 2>&1 && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
  { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; } >/dev/null 2>&1 ||
    echo "browser tests will be skipped: chromium could not be installed" >&2
else
  echo "browser tests will be skipped: no chromium, and no right to install it" >&2
fi
exit 0
