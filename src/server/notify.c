/* SPDX-License-Identifier: MIT */
#include "server/notify.h"
void server_notify(const char *state)
{
    (void)state;
}
