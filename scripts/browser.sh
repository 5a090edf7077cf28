#!/usr/bin/env bash
# Install the browser that tests of pages use: Debian's Chromium and its driver. Without it they are skipped.
set -euo pipefail
command -v chromium > /dev/null && command -v chromedriver > /dev/null && exit 0
if [ "$(id -u)" -eq 0 ]; then run=""; else run="sudo"; fi
$run apt-get update -qq
$run apt-get install -y -qq --no-install-recommends chromium chromium-driver
