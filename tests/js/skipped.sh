#!/bin/sh
# SPDX-License-Identifier: MIT
# Stands for the tests of the JavaScript host where it cannot be built.
echo 1..1
echo "ok 1 - foliot js # SKIP JavaScriptCore (libjavascriptcoregtk-4.1-dev) is not installed"
