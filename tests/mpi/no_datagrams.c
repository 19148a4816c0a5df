/* For LD_PRELOAD: a network that swallows datagrams. What is sent in one succeeds and never arrives. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netinet/in.h>
#include <stddef.h>
#include <sys/socket.h>

static int is_datagram(int fd) {
    int type = 0, domain = 0;
    socklen_t length = sizeof type;
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) != 0 || type != SOCK_DGRAM)
        return 0;
    length = sizeof domain;
    return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 && (domain == AF_INET || domain == AF_INET6);
}

ssize_t sendto(int fd, const void *bytes, size_t length, int flags, const struct sockaddr *to, socklen_t to_length) {
    typedef ssize_t (*Function)(int, const void *, size_t, int, const struct sockaddr *, socklen_t);
    static Function real;
    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "sendto");
    return is_datagram(fd) ? (ssize_t)length : real(fd, bytes, length, flags, to, to_length);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
    typedef ssize_t (*Function)(int, const struct msghdr *, int);
    static Function real;
    ssize_t length = 0;
    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "sendmsg");
    if (!is_datagram(fd))
        return real(fd, message, flags);
    for (size_t i = 0; i < message->msg_iovlen; ++i)
        length += (ssize_t)message->msg_iov[i].iov_len;
    return length;
}
