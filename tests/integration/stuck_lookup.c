/* Name look-ups that do not end, for LD_PRELOAD: what a resolver does whose server has gone.
 *
 * "cluster.test" is this machine until the file named by STUCK_LOOKUP exists; from then on nobody answers for STUCK_S.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int (*lookup)(const char *, const char *, const struct addrinfo *, struct addrinfo **);

enum { STUCK_S = 120 };

int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **found)
{
    lookup real = (lookup)dlsym(RTLD_NEXT, "getaddrinfo");
    if (name == NULL || strcmp(name, "cluster.test") != 0)
        return real(name, service, hints, found);
    const char *file = getenv("STUCK_LOOKUP");
    if (file != NULL && access(file, F_OK) == 0) {
        sleep(STUCK_S);
        return EAI_AGAIN;
    }
    return real("127.0.0.1", service, hints, found);
}
