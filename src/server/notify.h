/* SPDX-License-Identifier: MIT */
#ifndef FOLIOT_SERVER_NOTIFY_H
#define FOLIOT_SERVER_NOTIFY_H

/* Tells the service manager how the server is doing, as sd_notify(3) describes: "READY=1", "STOPPING=1", "RELOADING=1" (the
 * time is added, which it must have), "STATUS=4 shards, 3 ready"; several with newlines between them. Nothing happens if
 * there is no manager (NOTIFY_SOCKET is not set) or it does not listen. Any thread. */
void server_notify(const char *state);

#endif
