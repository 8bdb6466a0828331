/* The process that keeps a Pod's namespaces: it sleeps, and collects processes that ended. As process 1 it gets only signals that it handles. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int number) {
    (void)number;
    _exit(0);
}

static void collect(int number) {
    (void)number;
    while (waitpid(-1, 0, WNOHANG) > 0) {
    }
}

int main(void) {
    signal(SIGTERM, end);
    signal(SIGINT, end);
    signal(SIGCHLD, collect);
    for (;;)
        pause();
}
