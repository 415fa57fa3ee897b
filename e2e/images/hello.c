/* A worker that needs nothing of its image: what examples/hello.yaml does in a shell. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *value(const char *name) {
    const char *found = getenv(name);
    return found ? found : "unknown";
}

int main(void) {
    printf("rank %s of %s, attempt %s\n", value("RANK"), value("WORLD_SIZE"), value("GANG_ATTEMPT"));
    fflush(stdout);
    sleep(2);
    return !strcmp(value("RANK"), "1") && !strcmp(value("GANG_ATTEMPT"), "1");
}
