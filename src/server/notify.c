/* SPDX-License-Identifier: MIT */
/* One datagram to a socket of the manager's, by its path or its name in the abstract namespace ("@name"). */

#include "server/notify.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* The size of the address, 0 if there is none. */
static socklen_t manager_address(struct sockaddr_un *address)
{
    const char *path = getenv("NOTIFY_SOCKET");
    size_t size = path ? strlen(path) : 0;
    if (size < 2 || size >= sizeof address->sun_path || (path[0] != '/' && path[0] != '@'))
        return 0;
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(address->sun_path, path, size);
    if (path[0] == '@')
        address->sun_path[0] = '\0';
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + size);
}

void server_notify(const char *state)
{
    struct sockaddr_un address;
    socklen_t size = manager_address(&address);
    char message[1024];
    struct timespec now;
    if (size == 0)
        return;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (strncmp(state, "RELOADING=1", 11) == 0)
        snprintf(message, sizeof message, "%s\nMONOTONIC_USEC=%lld", state,
                 (long long)now.tv_sec * 1000000 + now.tv_nsec / 1000);
    else
        snprintf(message, sizeof message, "%s", state);
    int manager = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (manager < 0)
        return;
    sendto(manager, message, strlen(message), MSG_NOSIGNAL | MSG_DONTWAIT, (struct sockaddr *)&address, size);
    close(manager);
}
