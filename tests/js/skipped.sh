#!/bin/sh
# SPDX-License-Identifier: MIT
# Stands for the tests of the JavaScript host where it cannot be built.
echo 1..1
echo "ok 1 - foliot js # SKIP it is not in this build: it needs JavaScriptCore (libjavascriptcoregtk-4.1-dev)"
