/* A program in C, in a gang: it reports progress, registers checkpoints, restores, and saves a last time when it is told
   to stop. `local.yaml` runs it on this machine, `languages.yaml` on a cluster. Only the C library is needed; for any
   image, build it with `cc -O2 -static -o train train.c`.

   The work of a step is a few arithmetic operations on the state of this rank. docs/tasks/other-languages.md has the
   rules: who this process is and what to restore come from the environment; the sidecar is HTTP on a unix socket. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { SAVE_EVERY = 10, TRIES = 50, PATIENCE_SECONDS = 2 };

static volatile sig_atomic_t told_to_stop;

static void on_sigterm(int number) {
    (void)number;
    told_to_stop = 1;
}

static const char *variable(const char *name, const char *otherwise) {
    const char *value = getenv(name);
    return value && *value ? value : otherwise;
}

static void pause_for(long milliseconds) {
    struct timespec rest = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    nanosleep(&rest, NULL);
}

/* POST a body; returns the status of the answer, 0 if there is none. Outside of gangctl it is 200. */
static int post(const char *path, const char *body) {
    const char *place = variable("GANG_SOCKET", "");
    if (!*place)
        return 200;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct timeval patience = {PATIENCE_SECONDS, 0};
    char text[2048];
    int status = 0, file = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (file < 0)
        return 0;
    snprintf(address.sun_path, sizeof address.sun_path, "%s", place);
    setsockopt(file, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(file, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    int length = snprintf(text, sizeof text,
                          "POST %s HTTP/1.1\r\nHost: gang\r\nContent-Type: application/json\r\n"
                          "Content-Length: %zu\r\nConnection: close\r\n\r\n%s",
                          path, strlen(body), body);
    if (length < (int)sizeof text && connect(file, (struct sockaddr *)&address, sizeof address) == 0 &&
        send(file, text, (size_t)length, MSG_NOSIGNAL) == length) {
        size_t had = 0;
        ssize_t more;
        while (had < sizeof text - 1 && (more = recv(file, text + had, sizeof text - 1 - had, 0)) > 0)
            had += (size_t)more;
        text[had] = 0;
        if (sscanf(text, "HTTP/1.%*d %d", &status) == 1 && status >= 400)
            fprintf(stderr, "%s: %s\n", path, strstr(text, "\r\n\r\n") ? strstr(text, "\r\n\r\n") + 4 : text);
    }
    close(file);
    return status;
}

/* Report the step. It is the heartbeat: one that is lost does no harm, so nothing is tried again. */
static void progress(long attempt, long rank, long step) {
    char body[256];
    snprintf(body, sizeof body, "{\"attempt\": %ld, \"rank\": %ld, \"phase\": \"Step\", \"step\": %ld}", attempt, rank, step);
    post("/v1/progress", body);
}

/* Sync the entries of a folder, so that a power failure keeps a file that was renamed in it. */
static int sync_folder(const char *path) {
    int file = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int failed = file < 0 || fsync(file);
    if (file >= 0)
        close(file);
    return failed;
}

/* Write this rank's part, complete or not at all, and register it: only what is registered by all ranks is restored.
   In a Shared tier all ranks register the same path: the folder. */
static void save(const char *directory, long attempt, long rank, long step, uint64_t state) {
    char folder[1024], path[1100], half[1200], body[1400];
    snprintf(folder, sizeof folder, "%s/step-%ld", directory, step);
    snprintf(path, sizeof path, "%s/rank-%ld", folder, rank);
    snprintf(half, sizeof half, "%s.half", path);
    mkdir(directory, 0777);
    FILE *file = mkdir(folder, 0777) == 0 || errno == EEXIST ? fopen(half, "w") : NULL;
    if (!file || fprintf(file, "%" PRIu64 "\n", state) < 0 || fflush(file) || fsync(fileno(file)) || fclose(file) ||
        rename(half, path) || sync_folder(folder) || sync_folder(directory)) {
        perror(path);
        exit(1);
    }
    snprintf(body, sizeof body,
             "{\"attempt\": %ld, \"rank\": %ld, \"tier\": \"shared\", \"step\": %ld, \"state\": \"Completed\", "
             "\"path\": \"%s\"}",
             attempt, rank, step, folder);
    for (int tries = 0; tries < TRIES; tries++) {
        int status = post("/v1/checkpoints", body);
        if (status != 0 && status != 503) /* The sidecar is away, or its supervisor: it comes back. */
            return;
        pause_for(100);
    }
    fprintf(stderr, "step %ld is not registered, so it will not be restored: the sidecar doesn't answer\n", step);
}

int main(void) {
    long attempt = atol(variable("GANG_ATTEMPT", "1")), rank = atol(variable("RANK", "0"));
    long first = atol(variable("GANG_RESTORE_STEP", "0")), steps = atol(variable("STEPS", "200"));
    const char *directory = variable("CHECKPOINT_DIR", "."), *restore = variable("GANG_RESTORE_PATH", "");
    uint64_t state = (uint64_t)rank;
    struct sigaction stop = {.sa_handler = on_sigterm, .sa_flags = SA_RESTART};
    sigaction(SIGTERM, &stop, NULL);
    if (first) {
        char path[1100];
        snprintf(path, sizeof path, "%s/rank-%ld", restore, rank);
        FILE *file = fopen(path, "r");
        if (!file || fscanf(file, "%" SCNu64, &state) != 1) {
            fprintf(stderr, "the restore point %s can't be read: %s\n", path, strerror(errno));
            return 1;
        }
        fclose(file);
    }
    printf("rank %ld attempt %ld: begins after step %ld\n", rank, attempt, first);
    fflush(stdout);
    for (long step = first + 1; step <= steps; step++) {
        pause_for(20);
        state = state * 6364136223846793005u + (uint64_t)(step + rank);
        progress(attempt, rank, step);
        int stopping = told_to_stop;
        if (step % SAVE_EVERY == 0 || stopping)
            save(directory, attempt, rank, step, state);
        if (stopping) {
            printf("rank %ld attempt %ld: stops after step %ld\n", rank, attempt, step);
            return 0;
        }
    }
    char path[1024];
    snprintf(path, sizeof path, "%s/result-%ld", directory, rank);
    FILE *file = fopen(path, "w");
    if (!file || fprintf(file, "%" PRIu64 "\n", state) < 0 || fclose(file)) {
        perror(path);
        return 1;
    }
    return 0;
}
