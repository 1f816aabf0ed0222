// Preloaded into programs that open pseudo-terminals: DTR and RTS, which those lack, go to the bus.
//
// The kernel refuses TIOCMBIS and its like there. Here each is told to the unix datagram socket of
// $USB_DESK_LINES as "NAME DTR RTS", NAME the terminal's, and succeeds.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <termios.h>
#include <unistd.h>

#define MOST 1024
static int lines[MOST];  // by descriptor

static int tell(int fd) {
    char name[64];
    const char *path = getenv("USB_DESK_LINES");
    if (!path || ttyname_r(fd, name, sizeof name)) return -1;
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    strncpy(to.sun_path, path, sizeof to.sun_path - 1);
    char text[96];
    int length = snprintf(text, sizeof text, "%s %d %d", name, !!(lines[fd] & TIOCM_DTR),
                          !!(lines[fd] & TIOCM_RTS));
    int link = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (link < 0) return -1;
    // A chip looks at its pins within milliseconds: we go on when the bus has let it.
    struct sockaddr_un own = {.sun_family = AF_UNIX};
    struct timeval most = {.tv_sec = 10};
    char done;
    int failed = bind(link, (struct sockaddr *)&own, sizeof own.sun_family) ||
                 setsockopt(link, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most) ||
                 sendto(link, text, (size_t)length, 0, (struct sockaddr *)&to, sizeof to) != length ||
                 recv(link, &done, 1, 0) != 1;
    close(link);
    return failed ? -1 : 0;
}

int ioctl(int fd, unsigned long request, ...) {
    static int (*real)(int, unsigned long, ...);
    if (!real) real = (int (*)(int, unsigned long, ...))dlsym(RTLD_NEXT, "ioctl");
    va_list rest;
    va_start(rest, request);
    int *argument = va_arg(rest, int *);
    va_end(rest);
    if (fd < 0 || fd >= MOST) return real(fd, request, argument);
    switch (request) {
        case TIOCMBIS: lines[fd] |= *argument; break;
        case TIOCMBIC: lines[fd] &= ~*argument; break;
        case TIOCMSET: lines[fd] = *argument; break;
        case TIOCMGET: *argument = lines[fd]; return 0;
        default: return real(fd, request, argument);
    }
    return tell(fd);
}
