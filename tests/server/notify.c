/* SPDX-License-Identifier: MIT */
/* Notifications, as a service manager gets them. */

#include "server/notify.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "test.h"

static int manager;
static char message[2048];

/* Listens at a path, or at an abstract name that begins with '@'. */
static void listen_at(const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", name);
    if (name[0] == '@')
        address.sun_path[0] = '\0';
    manager = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name));
    CHECK(manager >= 0 && bind(manager, (struct sockaddr *)&address, size) == 0);
    setenv("NOTIFY_SOCKET", name, 1);
}

/* What has come: a datagram has when sendto() has returned. */
static const char *received(void)
{
    ssize_t size = recv(manager, message, sizeof message - 1, 0);
    if (size < 0)
        return NULL;
    message[size] = '\0';
    return message;
}

static void check_messages(void)
{
    server_notify("READY=1\nSTATUS=4 shards");
    CHECK(strcmp(received(), "READY=1\nSTATUS=4 shards") == 0);
    server_notify("STOPPING=1");
    CHECK(strcmp(received(), "STOPPING=1") == 0);
    server_notify("RELOADING=1");
    static const char begin[] = "RELOADING=1\nMONOTONIC_USEC=";
    CHECK(strncmp(received(), begin, sizeof begin - 1) == 0);
    CHECK(strtoll(message + sizeof begin - 1, NULL, 10) > 0);
    CHECK(received() == NULL);
    close(manager);
}

TEST(a_socket_at_a_path)
{
    char folder[] = "/tmp/foliot-notify-XXXXXX", path[64];
    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/socket", folder);
    listen_at(path);
    check_messages();
    CHECK(unlink(path) == 0 && rmdir(folder) == 0);
}

TEST(an_abstract_socket)
{
    char name[64];
    snprintf(name, sizeof name, "@foliot-notify-%d", (int)getpid());
    listen_at(name);
    check_messages();
}

TEST(nobody_listens)
{
    char longer[300];
    memset(longer, '/', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    static const char *const places[] = {"", "/", "@", "relative", "/nowhere/at/all", "@foliot-nobody", "vsock:2:1234"};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        setenv("NOTIFY_SOCKET", places[i], 1);
        server_notify("READY=1");
    }
    setenv("NOTIFY_SOCKET", longer, 1);
    server_notify("READY=1");
    unsetenv("NOTIFY_SOCKET");
    server_notify("READY=1");
}
