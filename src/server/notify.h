/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_SERVER_NOTIFY_H
#define FOLIOT_SERVER_NOTIFY_H
void server_notify(const char *state);
#endif
