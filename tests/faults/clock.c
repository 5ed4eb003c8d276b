/* A wall clock that can be stepped: the wall time of the process that this is preloaded into is off by what a file says.

   TIDEMILL_CLOCK names a file of eight bytes, nanoseconds, that others write to. The monotonic clock is left alone, and so
   is the kernel's: a deadline in wall time that a thread waits for is moved back, as a step of the real clock would do. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL
#define WALL_TIME_FROM 1000000000LL /* seconds: no machine has been up for so long, and 2001 is over */

static volatile int64_t none, *offset = &none;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("TIDEMILL_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *mapped = mmap(0, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED)
        offset = mapped;
}

static void shift(struct timespec *moment, int64_t by) {
    int64_t all = moment->tv_sec * SECOND + moment->tv_nsec + by;
    moment->tv_sec = all / SECOND;
    moment->tv_nsec = all % SECOND;
}

static int kernel_time(clockid_t clock, struct timespec *moment) {
    static int (*original)(clockid_t, struct timespec *);
    if (!original)
        original = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    return original(clock, moment);
}

int clock_gettime(clockid_t clock, struct timespec *moment) {
    int status = kernel_time(clock, moment);
    if (!status && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        shift(moment, *offset);
    return status;
}

int gettimeofday(struct timeval *restrict moment, void *restrict zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    moment->tv_sec = now.tv_sec;
    moment->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *moment) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (moment)
        *moment = now.tv_sec;
    return now.tv_sec;
}

static struct timespec deadline(const struct timespec *moment) {
    struct timespec real = *moment;
    if (real.tv_sec > WALL_TIME_FROM)
        shift(&real, -*offset);
    return real;
}

int pthread_cond_timedwait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict until) {
    static int (*original)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    if (!original)
        original = (int (*)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *))dlsym(
            RTLD_NEXT, "pthread_cond_timedwait");
    struct timespec real = deadline(until);
    return original(cond, mutex, &real);
}

int sem_timedwait(sem_t *restrict semaphore, const struct timespec *restrict until) {
    static int (*original)(sem_t *, const struct timespec *);
    if (!original)
        original = (int (*)(sem_t *, const struct timespec *))dlsym(RTLD_NEXT, "sem_timedwait");
    struct timespec real = deadline(until);
    return original(semaphore, &real);
}
